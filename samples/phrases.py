"""Building blocks of the sample traffic, written for it: a shop, records, code, facts, briefs."""

SHOP_RULES = """You are the support assistant of Fernhill Outdoor, a small shop for camping gear.
Answer politely and only from the rules below.
Delivery: parcels leave the store every weekday at three in the afternoon. Inland delivery takes two
working days and costs 4.50; above an order value of 60 it is free. Islands take four working days
and cost 7. We do not ship to other countries.
Returns: unused goods can come back within 30 days with the printed label from the parcel. The money
is paid back within five working days after the parcel has reached us. Stoves, gas and food are
excluded. Worn boots can be exchanged once within 14 days.
Warranty: tents carry three years, sleeping bags two years, lamps and stoves one year. Poles and
zips of tents are repaired free of charge for five years. Please send a photo and the order number.
Tent Heron sleeps two people, weighs 2.1 kg and costs 189. Tent Osprey sleeps four people, weighs
4.6 kg and costs 329. Sleeping bag Tern is warm to minus 7 degrees and costs 149. Lamp Glow runs 12
hours and costs 29.
Members pay 20 a year and get ten percent off everything but gas."""

# Question and the answer that a good assistant would have given (it is history in later turns).
SUPPORT_QUESTIONS = (
    (
        "How long does delivery to an island take, and what does it cost?",
        "Delivery to an island takes four working days and costs 7.",
    ),
    (
        "I want to send back a tent that I have not used. How do I do that?",
        "You can send an unused tent back within 30 days with the printed label from the parcel.",
    ),
    (
        "The zip of my Heron tent broke after four years. Is that still covered?",
        "Yes, poles and zips of tents are repaired free of charge for five years.",
    ),
    (
        "Which sleeping bag should I take for nights around freezing?",
        "The sleeping bag Tern is warm to minus 7 degrees and costs 149.",
    ),
    (
        "Can I return a gas stove that I bought last week?",
        "Stoves are excluded from returns, so the stove cannot be sent back.",
    ),
    (
        "What does the membership cost and what do I get for it?",
        "Members pay 20 a year and get ten percent off everything but gas.",
    ),
    (
        "My order is worth 75. Do I have to pay for delivery inland?",
        "No, above an order value of 60 inland delivery is free.",
    ),
    (
        "How heavy is the tent for four people, and what is its price?",
        "The tent Osprey sleeps four people, weighs 4.6 kg and costs 329.",
    ),
    (
        "My boots rub after two walks. Can I exchange them?",
        "Worn boots can be exchanged once within 14 days.",
    ),
    (
        "When will I get my money back after a return?",
        "The money is paid back to the same card within five working days after it arrived.",
    ),
    (
        "How many hours does the lamp run, and how long is its warranty?",
        "The lamp Glow runs 12 hours and lamps carry a warranty of one year.",
    ),
    ("Do you ship to another country?", "We are sorry, we do not ship to other countries."),
    (
        "What do you need from me for a warranty repair of a tent?",
        "Please send a photo and the order number, then we can start the repair.",
    ),
)

OPENINGS = ("Hello, ", "Good morning. ", "Hi there, ", "", "Quick question: ", "Dear team, ")

FIRST_NAMES = ("Mara", "Jonas", "Ilse", "Pavel", "Noor", "Tomas", "Greta", "Aron", "Lidia", "Milan")
LAST_NAMES = (
    "Keller",
    "Novak",
    "Lindqvist",
    "Moreau",
    "Okafor",
    "Brandt",
    "Silva",
    "Petrov",
    "Hale",
)
TOWNS = ("Aldermoor", "Birkfeld", "Casten", "Dunmere", "Elsby", "Farrow", "Grauhafen", "Holm")
GOODS = (
    "copper kettle",
    "oak shelf",
    "wool blanket",
    "brass lamp",
    "garden chair",
    "paper press",
    "steel ladder",
    "linen curtain",
    "clay pot",
    "bread tin",
)
COLOURS = ("green", "blue", "red", "white", "black", "yellow")

STREETS = ("Mill Lane", "Harbour Road", "Church Hill", "Station Street", "Linden Way")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
CARRIERS = ("Swift Parcel", "Blue Van", "River Freight", "Nordic Post")
NOTES = (
    "ring twice and wait at the gate",
    "leave the parcel with the neighbour",
    "call before you come",
    "the entrance is behind the bakery",
)

# Python functions whose names and numbers are filled in; each is an everyday piece of code.
FUNCTIONS = (
    """def {name}_total(items, rate):
    total = 0
    for item in items:
        total += item.price * item.amount
    return round(total * (1 + rate), {digits})
""",
    """def load_{name}(path):
    rows = []
    with open(path) as source:
        for line in source:
            if line.strip():
                rows.append(line.split(","))
    return rows[:{limit}]
""",
    """def find_{name}(table, key):
    for row in table:
        if row["{field}"] == key:
            return row
    return None
""",
    """def wait_for_{name}(client, tries={limit}):
    for attempt in range(tries):
        answer = client.get("/{name}/status")
        if answer.ok:
            return answer.json()
    raise TimeoutError("{name} did not answer")
""",
    """def group_{name}(records):
    groups = {{}}
    for record in records:
        key = record["{field}"]
        groups.setdefault(key, []).append(record)
    return groups
""",
    """def average_{name}(values):
    values = [value for value in values if value > {digits}]
    if not values:
        return None
    return sum(values) / len(values)
""",
    """def save_{name}(store, records):
    saved = 0
    for record in records:
        if record.get("{field}"):
            store.write("{name}", record)
            saved += 1
    return saved
""",
)
CODE_NAMES = (
    "order",
    "invoice",
    "sensor",
    "ticket",
    "parcel",
    "rental",
    "meter",
    "booking",
    "photo",
)
CODE_FIELDS = ("number", "owner", "city", "status", "colour", "weight")

# Facts about invented places; a passage is a choice of them in order.
FACTS = (
    "The lighthouse of {place} was built in {year} from grey stone that came by boat.",
    "It stands {height} metres above the water and its light can be seen for {miles} miles.",
    "For {decades} decades the same family kept the lamp and wrote the weather into a thick book.",
    "In the great storm of {year2} the sea took the small harbour wall and two fishing boats.",
    "The wall was built again by volunteers who carried the stones by hand for one summer.",
    "Today about {people} people live near {place}, most of them from fishing and from guests.",
    "A ferry brings visitors every morning in summer and three times a week in winter.",
    "The old oil store has become a museum with maps, lamps and a model of the first ferry.",
    "Schools use the tower to teach how waves, wind and light can be measured.",
    "Every autumn the town lights a fire on the beach to remember the boats that did not return.",
    "A bakery beside the pier sells a dark bread with seeds that keeps for a week at sea.",
    "Engineers plan to replace the lamp by one that needs a tenth of the power.",
    "Bird watchers count more than {birds} kinds each spring on the cliffs to the north.",
    "The path from the station to the tower is {path} kilometres long and has no shade.",
)
PLACES = ("Skerry Point", "Varn Head", "Lowen Bay", "Tarrow Ness", "Cape Milda", "Osk Island")

HEROES = (
    "a retired clockmaker",
    "a young bee keeper",
    "the captain of a river ferry",
    "a shy violinist",
    "a mountain postman",
    "the last lamp lighter of the town",
    "a baker who cannot sleep",
    "a girl who repairs radios",
    "an old gardener",
    "a painter of street signs",
)
SCENES = (
    "in a harbour full of fog",
    "on the roof of a closed theatre",
    "in a valley after the first snow",
    "on a night train without passengers",
    "in a library during a thunderstorm",
    "on an island with one tree",
    "in a market before sunrise",
    "beside a frozen canal",
)
FINDS = (
    "a letter without a sender",
    "a door that was not there yesterday",
    "a map drawn by a child",
    "a bird that speaks one word",
    "a box of unused stars",
    "a coin from a country nobody knows",
    "a key made of glass",
    "a song on an empty radio channel",
)
MOODS = (
    "quiet and hopeful",
    "funny and warm",
    "strange but gentle",
    "slow and a little sad",
    "bright and curious",
)
FORMS = (
    "the opening of a short story",
    "a diary entry",
    "a letter to a friend",
    "a scene for a radio play",
    "the first lines of a novel",
)
WISHES = (
    "Start in the middle of the action.",
    "Use short sentences and one surprising comparison.",
    "Let the weather matter, but do not open with it.",
    "Mention a smell and a sound.",
    "Avoid names; call people by what they do.",
    "Do not explain the mystery.",
    "Keep the dialogue to a single line.",
    "Let a small object change its owner.",
    "The reader should want to know what happens next.",
    "Write in the present tense.",
    "Nobody in the scene may know the whole truth.",
    "Let the last sentence point to a journey.",
    "Show one gesture that says more than words.",
    "Keep the tone close to how people really speak.",
    "Give the place a history without telling it.",
    "Choose plain words over rare ones.",
)
