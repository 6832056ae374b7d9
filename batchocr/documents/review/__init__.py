"""Pages and what was read of them, side by side, in one HTML file: `batchocr view`."""
