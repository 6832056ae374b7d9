"""The words of the sample documents, all of our own making."""

ARTICLE_OPENING = (
    "1  A clock without a spring",
    "A sundial has one moving part, and that part is the sky. Nothing in it can be wound, lent, dropped or left on a "
    "train. The dial in our walled garden was set up by a schoolmaster who wished his pupils to be punctual in fine "
    "weather and forgiven in rain, and it has kept both promises for about a hundred and forty years. Visitors put a "
    "hand on the warm stone, look at their wrists, and tell us kindly that it is wrong. It is not wrong. It is only "
    "answering a different question.",
    "2  Laying out the hours",
    "The blade that throws the shadow, called the gnomon, points to the pole of the sky, so its slope equals the "
    "latitude of the garden. The sun then swings around it by fifteen degrees an hour. On a level plate the hour "
    "lines do not open evenly: they crowd together near noon and spread towards evening. The angle between the noon "
    "line and any other hour line follows from one short rule:",
    "Here t is the number of hours after noon and the Greek letter under the sine is the latitude. A pencil, a "
    "protractor and a quiet hour are all that is needed. Figure 1 shows the result for our own garden wall.",
    "Cutting the lines into slate is slower work than drawing them, and it rewards patience. Scratch every line "
    "lightly first, set the plate outside on a clear day, and compare it with a good watch at ten, at noon and at "
    "three. Do this in April or in June, when sun and watch very nearly agree, and do it twice, for the first clear "
    "day of the year makes everybody careless. A cloud will come at one minute to noon; it always does, and the only "
    "remedy is to have brought a sandwich and to try again on the day after. Only when all three marks have been "
    "proved in this way should the chisel be allowed to come out of its drawer again, because",
)
ARTICLE_CLOSING = (
    "slate does not forgive and has an excellent memory. Our schoolmaster cut the figure for seven o’clock a "
    "finger’s width too far to the left, and four generations of gardeners have gone in to breakfast early on "
    "account of it.",
    "3  Sun time and clock time",
    "The sun is not a perfectly regular servant. The path of the earth is a little longer on one side than on the "
    "other, and its axis leans, so a sundial runs ahead of the clock in autumn and behind it in late winter. The "
    "difference never exceeds seventeen minutes, and four times a year it vanishes. Table 1 gives it for the middle "
    "of six months; we have it painted on a board beside the potting shed.",
    "Rounded to the half minute. A minus sign means that the sun is late.",
    "4  Before you begin",
    "A first dial can be made from plywood in an afternoon, and it will be more nearly right than most of what is "
    "made in an afternoon. Work indoors, on a table that does not rock, and carry the plate out when the glue is "
    "dry. You will need:",
    "Draw the noon line first, from the middle of the southern edge to the middle of the northern one, and measure "
    "every other angle from it. Glue the tin upright along that line with its sharp corner at the south. On a sunny "
    "day turn the whole plate until the shadow gives the hour you have worked out, and then screw it down before "
    "anyone leans on it.",
    "When it is finished, give it a place with an open view to the south, a bench, and something that flowers at "
    "about the height of the plate. Bees are fond of warm slate, and a dial that nobody sits beside soon forgets "
    "what it is for.",
    "* The author keeps the sundial, the gate key and the marmalade at Fennel House.",
)
ARTICLE_TABLE = [
    ("Month", "Minutes", "What is best done then"),
    ("February", "−14", "mending the cold frames"),
    ("April", "0", "sowing peas and radishes"),
    ("May", "+3.5", "listening to the blackbird"),
    ("July", "−6", "picking currants before eight"),
    ("September", "+4.5", "gathering the first pears"),
    ("November", "+15.5", "planting tulips, drinking tea"),
]
ARTICLE_LIST = (
    "a square of plywood, sanded and painted white;",
    "a triangle of tin whose long edge rises at the angle of your latitude;",
    "a protractor, a soft pencil, and a pen with ink that does not mind the rain;",
    "a spirit level, or a saucer of water and a steady eye.",
)

COLUMNS_LEFT = (
    (
        "text",
        "There is a bench at the end of our breakwater that faces nothing in particular. It was meant for the "
        "lamplighter, who needed somewhere to put his ladder, and it has outlived both of them. On most mornings you "
        "will find me there with a flask, looking up.",
    ),
    (
        "text",
        "People suppose that watching clouds is the same as doing nothing. It is nearer to reading. There is an "
        "alphabet, which can be learned in a week, and there is a grammar, which takes rather longer, and when you "
        "have both the sky turns out to be full of short, sensible sentences about tomorrow.",
    ),
    ("heading", "The alphabet"),
    (
        "text",
        "High and thin as combed wool are the mares’ tails. They are made of ice, and when they thicken from the "
        "west the fishermen bring in their washing. Lower down come the flocks, small and even, which promise a dry "
        "day and a cool one. The great cauliflowers of summer begin as single heads at ten o’clock; if they have "
        "stopped growing by noon there will be no storm, and if they have not there will.",
    ),
    (
        "text",
        "Lowest of all is the grey lid, which the children call the saucepan. It says very little. I have learned to "
        "respect it all the same, for behind it, on a spring evening, you may sometimes hear the geese come home "
        "without being able to see a single one of them.",
    ),
    ("heading", "The grammar"),
    (
        "text",
        "No cloud means anything alone. What matters is which kind follows which, and how fast, and whether the wind "
        "at the top of the mast agrees with the wind among the gulls. When the two are at odds the weather is about "
        "to change its mind, and a sensible person gets up, sighs, finishes",
    ),
)
COLUMNS_RIGHT = (
    ("text", "the flask and walks back along the wall before the steps are wet."),
    (
        "text",
        "My neighbour Ida, who repairs barometers, holds that I could learn the same in half a minute from her shop "
        "window. She is right, and I have told her so. But a barometer has never once looked like a hippopotamus, "
        "and on the ninth of June a cloud did, for very nearly a quarter of an hour, with a smaller one behind it.",
    ),
    ("heading", "How to begin"),
    (
        "text",
        "Choose one hour and keep to it. Write down a word for the highest cloud, a word for the lowest, and the "
        "direction in which each was travelling. At the same hour next day write what the weather did. After a month "
        "you will be right three times in five, after a year four times, and there you will stay, as I have, for the "
        "fifth time belongs to the sky.",
    ),
    (
        "text",
        "Do not trouble with instruments. A wet finger, a weathercock and a window that faces west will do. If you "
        "can, take a companion who disagrees with you: two people see more shapes than one, and the tea stays warm "
        "because somebody remembers to close the flask.",
    ),
    ("heading", "An invitation"),
    (
        "text",
        "The bench seats four, or five who are friends. It is painted every second spring in whatever colour is left "
        "over from the boats, so that it is at present a very dark green with one red leg. You will know it when you "
        "see it. Come on any morning when there is something overhead, and if there is nothing, come anyway: an "
        "empty sky is a page too, and it is pleasant to sit before it while it is still unwritten.",
    ),
    (
        "text",
        "The Lantern will print the best month of notes it receives before the autumn fair. The prize is a jar of "
        "honey from the customs house roof and the lamplighter’s old cushion.",
    ),
)

LETTER = (
    "Quince Cottage, Mill Lane",
    "2 October",
    "Dear Mr. Abernathy,",
    "Thank you for the loan of the long ladder. It is leaning against your side of the wall again, washed, with the "
    "third rung mended, and I hope you will forgive the robin who moved into it over the weekend and had to be asked "
    "twice to leave.",
    "The old tree gave us eleven baskets this year. Two were the yellow ones that keep until February, six were for "
    "cider, and the rest were of the kind my grandmother called Sailor’s Promise, because they are handsome and do "
    "not last. I have set one basket of each under your porch. The cider will be ready in March, when we shall need "
    "your opinion of it, and very likely your corkscrew.",
    "You asked how to keep the wasps from the plums. I hang up a jar with a spoonful of jam and an inch of water, "
    "far from the tree and nearer to the compost than seems polite. They prefer it. I was told this by the man who "
    "used to drive the milk cart, and he had it from his mother, so it is tested over about ninety years.",
    "The garden committee meets on Thursday the 19th at half past six in the school kitchen. There are three matters "
    "to settle: the price of seed potatoes, the bench by the pump, and who is to be Father Christmas. I shall "
    "propose you for the last, so consider yourself warned.",
    "With kind regards from both of us, and from the robin,",
    "Wilhelmina Tansy",
)

FAX_PAGES = (
    (
        "SPRING CONCERT: PLEASE READ",
        (
            "To all singers of the Willowbridge Choir, and to Mr. Pell, who plays the organ.",
            "The concert will be held on Saturday, 6 April at 7.30 in the evening in the boat hall. Doors open at "
            "seven. Please come by the side entrance, because the front one will be full of daffodils.",
            "The boat hall is cold until about forty people have breathed in it. Wear wool under whatever you mean "
            "to be seen in. The altos have kindly offered to bring soup.",
            "Two pages follow: the order of rehearsals, and the programme.",
        ),
    ),
    (
        "REHEARSALS",
        (
            "Tuesday 19 March, 7 p.m. Sopranos and altos. Schoolroom. Bring pencils.",
            "Thursday 21 March, 7 p.m. Tenors and basses. Schoolroom. Bring the piano stool back, whoever has it.",
            "Tuesday 26 March, 7 p.m. Everybody. Boat hall. We shall sing through once without stopping, whatever "
            "happens, and then talk about it over biscuits.",
            "Friday 5 April, 6 p.m. Everybody, with organ. Boat hall. Shoes as for the concert: the floor is loud.",
            "If you cannot come, tell Mrs. Larkin at the post office before noon.",
        ),
    ),
    (
        "PROGRAMME",
        (
            "1. Three songs about rivers.",
            "2. A round for four voices and one late arrival.",
            "3. Organ alone: Mr. Pell will play what he likes, for not more than nine minutes.",
            "Interval, with soup.",
            "4. The ballad of the ferryman’s goose, all eleven verses.",
            "5. A lullaby.",
            "6. Good night, with the audience.",
            "There will be no encore, unless there is.",
        ),
    ),
)

RECIPE = (
    "Quince Jelly, a Family Secret",
    "Rub the down from two kilograms of ripe quinces with a cloth. Cut them in quarters, cores and all, cover them "
    "with water and let them simmer under a lid until they are soft and the kitchen smells of roses.",
    "Pour everything into a cloth hung over a bowl and leave it there for the night. Do not squeeze, however late it "
    "is: squeezing makes the jelly cloudy, and the aunts will notice.",
    "In the morning weigh the juice, add three quarters of its weight in sugar and the juice of a lemon, and boil it "
    "briskly until a drop on a cold plate wrinkles when you push it. The secret is a single leaf of lemon geranium "
    "in each jar. Nobody outside the family is to know.",
)
