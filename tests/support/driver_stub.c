/* A driver with one GPU that is not there, for what sm_partition.py calls. Its prototypes are those of cuda.h, which the
   compiler checks. Each call is written down; one of them fails if so told. */

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>

static char written[1 << 14];
static int number_of_calls, failing_call;
static unsigned sms, granularity;
static size_t handles;

size_t resource_bytes(void) { return sizeof(CUdevResource); }
size_t sm_count_at(void) { return offsetof(CUdevResource, sm.smCount); }
const char *calls(void) { return written; }

void begin(int failing, unsigned sms_of_gpu, unsigned multiple) {
    written[0] = 0;
    number_of_calls = 0;
    failing_call = failing;
    sms = sms_of_gpu;
    granularity = multiple;
    handles = 0;
}

static CUresult call(const char *format, ...) {
    char *end = written + strlen(written);
    va_list values;
    va_start(values, format);
    end += vsnprintf(end, written + sizeof written - end, format, values);
    va_end(values);
    snprintf(end, written + sizeof written - end, "\n");
    return ++number_of_calls == failing_call ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* Pointers that do not fit into 32 bits. */
static void *new_handle(void) { return (void *)(0x7f0000000000 + 0x100 * ++handles); }
static int id_of(void *handle) { return (int)(((size_t)handle - 0x7f0000000000) / 0x100); }

static void fill(CUdevResource *resource, unsigned count) {
    memset(resource, count ? 0xab : 0, sizeof *resource);
    resource->type = count ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID;
    resource->sm.smCount = count;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_NOT_SUPPORTED ? "operation not supported" : NULL;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = 70 + ordinal;
    return call("device %d", ordinal);
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
    fill(resource, sms);
    return call("SMs of %d, type %d", device, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *groups, const CUdevResource *input,
                                     CUdevResource *rest, unsigned flags, unsigned count) {
    unsigned taken = (count + granularity - 1) / granularity * granularity;
    if (taken > input->sm.smCount)
        return call("too many") == CUDA_SUCCESS ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_ERROR_NOT_SUPPORTED;
    unsigned asked = *groups;
    fill(result, taken);
    fill(rest, input->sm.smCount - taken);
    *groups = 1;
    return call("split %u into %u of %u, flags %u", input->sm.smCount, asked, count, flags);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources, unsigned count) {
    *description = (CUdevResourceDesc)(size_t)(0x7f1000000000 + resources->sm.smCount);
    return call("describe %u SMs, %u", resources->sm.smCount, count);
}

CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc description, CUdevice device, unsigned flags) {
    *context = new_handle();
    return call("context %d of %d SMs on %d, flags %u", id_of(*context), (int)((size_t)description - 0x7f1000000000),
                device, flags);
}

CUresult cuGreenCtxDestroy(CUgreenCtx context) { return call("destroy context %d", id_of(context)); }

CUresult cuStreamDestroy(CUstream stream) { return call("destroy stream %d", id_of(stream)); }

#ifndef OLD
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned flags, int priority) {
    *stream = new_handle();
    return call("stream %d in context %d, flags %u, priority %d", id_of(*stream), id_of(context), flags, priority);
}
#endif
