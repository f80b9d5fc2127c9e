"""New names for training pairs: common ones, most of which English and French write alike, and invented ones, some in other scripts."""

import random
from collections.abc import Sequence

_MEN = """
Adam Alex Alexander Andreas Antonio Arjun Artur Ben Benjamin Bilal Bruno Carlos Christian Daniel David Diego Dimitri Edward Eric Erik
Fabio Felix Fernando Frank Gabriel George Giovanni Hans Harry Hassan Henrik Hiroshi Ibrahim Igor Ismail Ivan Jack Jacob James Jan Javier
Jens Joe John Jonas Jorge Joseph Juan Karim Karl Kevin Kofi Kwame Lars Leo Liam Luca Lucas Luis Magnus Malik Marco Mark Martin Mateo Max
Michael Mike Milan Mohamed Mustafa Nelson Nick Nikos Oliver Omar Oscar Pablo Patrick Paul Peter Philip Pierre Rafael Raj Ravi Ricardo
Richard Robert Robin Roberto Salim Sam Samuel Sanjay Sean Sergei Simon Stefan Stephen Steven Sven Tariq Theo Thomas Tim Tobias Tom Tomas
Tomasz Tony Vincent Walter Wei William Xavier Yusuf
"""
_WOMEN = """
Agnes Aisha Alice Amina Amy Ana Andrea Angela Anita Anja Ann Antonia Ayumi Barbara Beatriz Birgit Carla Carmen Caroline Catarina Chiara
Christina Clara Claudia Daniela Deborah Diana Elena Elif Elisa Ella Emily Erika Esther Eva Fatima Fatou Fiona Francesca Frida Gloria Grace
Greta Hanna Hannah Helen Helena Ida Ines Irina Isabella Jane Jasmine Jessica Joana Judith Julia Karen Kate Katja Keiko Kim Lea Leila Lena
Linda Lisa Lucia Lucy Magda Mai Maria Marie Marina Marta Martha Mary Maya Mei Michelle Monica Naomi Natalia Nicole Nina Nora Olga Olivia
Pamela Patricia Paula Petra Priya Rachel Rebecca Rita Rosa Ruth Samira Sandra Sara Sarah Silvia Simone Sofia Sonia Sophie Susan Svetlana
Tamara Tanja Teresa Ursula Valentina Vera Victoria Wendy Yasmin Yoko Zainab Zoe
"""
_PLACES = """
Aberdeen Abuja Accra Agra Algiers/Alger Amsterdam Ankara Antalya Athens/Athènes Atlanta Auckland Austin Bangkok Barcelona/Barcelone
Basel/Bâle Beijing/Pékin Belfast Bergen Berlin Birmingham Bogota Bonn Bordeaux Boston Bratislava Brisbane Bristol Brno Brussels/Bruxelles
Budapest Cambridge Cardiff Chicago Cologne Copenhagen/Copenhague Cork Dakar Dallas Damascus/Damas Delhi Denver Detroit Dortmund
Dresden/Dresde Dubai Dublin Durban Edinburgh/Édimbourg Essen Florence Frankfurt/Francfort Geneva/Genève Genoa/Gênes Glasgow Graz Haarlem
Hamburg/Hambourg Hanoi Helsinki Houston Istanbul Izmir Jakarta Kampala Karachi Kigali Kobe Krakow/Cracovie Kyoto Lagos Lahore Leeds
Leipzig Lille Lima Linz Lisbon/Lisbonne Liverpool Ljubljana Lodz London/Londres Luanda Madrid Maputo Marrakech Marseille Melbourne Memphis
Miami Milan Minsk Monaco Montreal/Montréal Moscow/Moscou Mumbai Munich Nagoya Nairobi Nantes Naples Nice Odessa Oran Orlando Osaka Oslo
Ottawa Oxford Palermo/Palerme Paris Perth Phoenix Porto Prague Quebec/Québec Quito Rabat Rennes Riga Rome Rostock Rotterdam
Salzburg/Salzbourg Santiago Sapporo Sarajevo Seattle Seoul/Séoul Seville/Séville Shanghai Singapore/Singapour Skopje Sofia Strasbourg
Stuttgart Sydney Tallinn Tampere Tartu Tirana Tokyo Toledo Toronto Toulouse Trieste Tunis Turin Ulm Uppsala Utrecht Vancouver
Venice/Venise Verona/Vérone Vienna/Vienne Vilnius Warsaw/Varsovie Yokohama Zagreb Zurich
"""
_SURNAMES = """
Abdullah Adams Almeida Andersson Bakker Bauer Becker Berg Bianchi Brown Campbell Carter Chen Cohen Costa Diallo Dubois Dupont Eriksson
Evans Fernandez Ferrari Fischer Fontaine Garcia Gomez Gonzalez Hansen Hughes Ito Ivanov Jackson Jansen Jensen Johnson Kaya Keller Khan Kim
Koch Kovacs Kumar Lambert Larsen Lee Lopez Mancini Martin Mendes Meyer Miller Moreau Moretti Murphy Nakamura Nguyen Nielsen Novak Okafor
Olsen Patel Pereira Petrov Popescu Quinn Ramirez Rossi Roy Sato Schmidt Schneider Schulz Sharma Silva Singh Smith Sokolov Suzuki Taylor
Torres Tran Vargas Wagner Walker Weber White Wilson Wong Yamada Yilmaz Young Zhang Zimmermann
"""
# The sounds of a syllable of an invented name, the commoner ones more often, and some that neither language has.
_ONSETS = "b bl br c ch d dr f g gr h j k kj kl kr l m n ng p pr q r s sh sk st sz t th tr v w x y z zh"
_VOWELS = "a e i o u a e i o u a e i o u y ai ei ey ia ie oa ou uy é á ö ü ø"
_CODAS = "l m n r s t k d p x ck cz ng nd rt sz tz w ll mm nn ss tt"
MEN, WOMEN, PLACES, SURNAMES = (names.split() for names in (_MEN, _WOMEN, _PLACES, _SURNAMES))
# One character of each script in turn: Latin with marks, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, kana, Han, Hangul, emoji.
_SCRIPTS = (
    (0xC0, 0x17F),
    (0x3B1, 0x3C9),
    (0x430, 0x44F),
    (0x5D0, 0x5EA),
    (0x627, 0x64A),
    (0x905, 0x939),
    (0xE01, 0xE2E),
    (0x3041, 0x30FA),
    (0x4E00, 0x9FA5),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1F64F),
)
_COMMON = 0.6  # the share of common names among new ones
_FOREIGN = 0.1  # of other scripts among invented ones
_FULL, _TITLED = 0.1, 0.1  # of persons with a surname, and with a title instead of the first name


def new_name(like: str | None, generator: random.Random) -> tuple[str, str]:
    """Another name of the same kind in English and French: of a man, a woman or a place where `like` is one, else an invented one.

    >>> [new_name(name, random.Random(3)) for name in ("Tom", "Mary", "Boston", "Facebook")]
    [('Juan', 'Juan'), ('Ida', 'Ida'), ('Mumbai', 'Mumbai'), ('Chiallleisztheitt', 'Chiallleisztheitt')]
    """
    kind = next((kind for kind in (MEN, WOMEN, PLACES, SURNAMES) if like in kind), None)
    person, draw = kind is MEN or kind is WOMEN, generator.random()
    if person and draw < _TITLED:
        surname, titles = _name(SURNAMES, generator)[0], ("Mr.", "M.") if kind is MEN else ("Mrs.", "Mme")
        return f"{titles[0]} {surname}", f"{titles[1]} {surname}"
    english, french = _name(kind, generator)
    surname = f" {_name(SURNAMES, generator)[0]}" if person and draw > 1 - _FULL else ""
    return english + surname, french + surname


def _name(kind: Sequence[str] | None, generator: random.Random) -> tuple[str, str]:
    """A common name of a kind, or an invented one."""
    if kind is None or generator.random() >= _COMMON:
        name = _invented(generator)
        return name, name
    english, _, french = generator.choice(kind).partition("/")
    return english, french or english


def _invented(generator: random.Random) -> str:
    """A name of random syllables; one in ten is of another script."""
    if generator.random() >= _FOREIGN:
        return _syllables(generator)
    first, last = generator.choice(_SCRIPTS)
    return "".join(chr(generator.randint(first, last)) for _ in range(generator.randint(1, 5)))


def _syllables(generator: random.Random) -> str:
    sounds = [generator.choice(_VOWELS.split())] if generator.random() < 0.3 else []
    for _ in range(generator.randint(1, 3)):
        coda = generator.choice(_CODAS.split()) if generator.random() < 0.5 else ""
        sounds += [generator.choice(_ONSETS.split()), generator.choice(_VOWELS.split()), coda]
    return "".join(sounds).capitalize()
