"""Checks that a text is a regular expression in RE2's syntax, which Kafka's requests use (KIP-848, KIP-1152). Only the
syntax is checked: nothing is compiled or matched, so that a pattern from the network costs one pass over its
characters.

    a|b  ab  (a)  (?:a)  (?i-s:a)  (?P<name>a)  (?<name>a)  .  ^  $
    * + ? {n} {n,} {n,m}     each may end in ? ; not twice in a row, n and m at most 1000, and no operand is missing
    [a-z^-]  [[:alpha:]]  \\d \\s \\w \\pL \\p{Greek}  \\x41 \\x{41} \\012  \\Q…\\E  \\A \\b \\B \\z
    \\ before any punctuation

Unlike Python's `re` it has neither look-around nor references. Names of scripts after \\p are those that Kafka 4.3.1
knows.
"""

from __future__ import annotations

import re
from typing import Final

_REPEATS_MAX: Final = 1000
_REPEAT = re.compile(r"\{(\d++)(,?)(\d*+)\}", re.ASCII)
_GROUP_NAME = re.compile(r"\?P?<(\w+)>", re.ASCII)
_FLAGS = re.compile(r"\?[imsU]*(?:-[imsU]+)?[:)]")
_HEX = re.compile(r"[0-9a-fA-F]{2}|\{[0-9a-fA-F]{1,6}\}")
_POSIX = re.compile(r"\[:\^?(alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]")
_UNICODE = re.compile(r"\^?([A-Z][A-Za-z_]*)")
_HIGHEST_CHARACTER: Final = 0x10FFFF
_CLASSES: Final = frozenset("dDsSwW")
_LETTERS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ASSERTIONS: Final = frozenset("AbBz")
_CATEGORY_NAMES: Final = (
    "Any C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
_SCRIPT_NAMES: Final = """
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo
    Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Common Coptic
    Cuneiform Cypriot Cyrillic Deseret Devanagari Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian
    Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew
    Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana
    Kayah_Li Kharoshthi Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani
    Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive
    Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nandinagari New_Tai_Lue Newa Nko Nushu
    Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian
    Old_South_Arabian Old_Turkic Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician
    Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng
    Soyombo Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangut Telugu Thaana
    Thai Tibetan Tifinagh Tirhuta Ugaritic Unknown Vai Wancho Warang_Citi Yi Zanabazar_Square
"""
_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.split())
_SCRIPTS: Final = frozenset(_SCRIPT_NAMES.split())


class _BadPatternError(Exception):
    """The pattern is not valid from here on."""


def is_re2(pattern: str) -> bool:
    """True where RE2 takes the pattern."""
    try:
        _Reader(pattern).read()
    except _BadPatternError:
        return False
    return True


class _Reader:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._names: set[str] = set()
        self._last_name_end = pattern.rfind(":]")

    def read(self) -> None:
        depth = 0
        operand = False  # the part before may be repeated
        repeated = False  # it has been
        text, end = self._text, len(self._text)
        while self._at < end:
            character = text[self._at]
            repeat = self._repeat()
            if repeat:
                if not operand or repeated:
                    raise _BadPatternError
                repeated = True
                continue
            repeated = False
            if character == "(":
                opened = self._group()
                depth += opened
                operand = operand and not opened  # flags are between an operand and its repetition
            elif character == ")":
                if depth == 0:
                    raise _BadPatternError
                depth -= 1
                self._at += 1
                operand = True
            elif character == "|":
                self._at += 1
                operand = False
            elif character == "[":
                self._set()
                operand = True
            elif text.startswith("\\Q", self._at):
                operand = self._quoted() or operand
            elif character == "\\":
                self._at += 1
                if self._at < end and text[self._at] in _ASSERTIONS:
                    self._at += 1
                else:
                    self._escape(in_set=False)
                operand = True
            else:
                self._at += 1
                operand = True
                repeated = character == "{"  # RE2 refuses to repeat a literal brace
        if depth:
            raise _BadPatternError

    def _repeat(self) -> bool:
        """Steps over a repetition, if one is here. Braces that are not a repetition are literal."""
        character = self._text[self._at]
        if character in "*+?":
            self._at += 1
        elif character == "{" and (found := _REPEAT.match(self._text, self._at)):
            self._at = found.end()
            low = _number(found[1])
            high = low if not found[2] or not found[3] else _number(found[3])
            if not low <= high <= _REPEATS_MAX:
                raise _BadPatternError
        else:
            return False
        if self._text.startswith("?", self._at):
            self._at += 1
        return True

    def _group(self) -> bool:
        """Steps over what opens a group; False where it only sets flags."""
        self._at += 1
        if not self._text.startswith("?", self._at):
            return True
        if named := _GROUP_NAME.match(self._text, self._at):
            if named[1] in self._names:
                raise _BadPatternError
            self._names.add(named[1])
            self._at = named.end()
            return True
        flags = _FLAGS.match(self._text, self._at)
        if flags is None:
            raise _BadPatternError
        self._at = flags.end()
        return flags[0].endswith(":")

    def _quoted(self) -> bool:
        """Steps over literal text; False if it is empty."""
        begins = self._at + 2
        found = self._text.find("\\E", begins)
        ends = len(self._text) if found < 0 else found
        self._at = ends if found < 0 else found + 2
        return ends > begins

    def _set(self) -> None:
        self._at += 1
        if self._text.startswith("^", self._at):
            self._at += 1
        first = True
        while first or not self._text.startswith("]", self._at):
            first = False
            if posix := _POSIX.match(self._text, self._at):
                self._at = posix.end()
                continue
            if self._text.startswith("[:", self._at) and self._at + 2 <= self._last_name_end:
                raise _BadPatternError  # an unknown class name
            low = self._member()
            if low is None or not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
                continue
            self._at += 1
            high = self._member()
            if high is None or high < low:
                raise _BadPatternError
        self._at += 1

    def _member(self) -> int | None:
        """The character at this place in a set; None for a class."""
        if self._at >= len(self._text):
            raise _BadPatternError
        character = self._text[self._at]
        self._at += 1
        return self._escape(in_set=True) if character == "\\" else ord(character)

    def _escape(self, *, in_set: bool) -> int | None:
        """Steps over what follows a backslash: returns the character that it means, None for a class."""
        if self._at >= len(self._text):
            raise _BadPatternError
        character = self._text[self._at]
        self._at += 1
        if character in _CLASSES:
            return None
        if character in "pP":
            self._unicode_class()
            return None
        if character in _LETTERS:
            return _LETTERS[character]
        if character == "x":
            found = _HEX.match(self._text, self._at)
            if found is None:
                raise _BadPatternError
            self._at = found.end()
            code = int(found[0].strip("{}"), 16)
            if code > _HIGHEST_CHARACTER:
                raise _BadPatternError
            return code
        if character in "01234567":
            return self._octal(character)
        if character < "\x80" and (character.isalnum() or character == "\x00"):
            raise _BadPatternError
        return ord(character)

    def _octal(self, first: str) -> int:
        """Up to three digits; a single one that is not 0 would be a reference."""
        digits = first
        while len(digits) < 3 and self._at < len(self._text) and self._text[self._at] in "01234567":
            digits += self._text[self._at]
            self._at += 1
        if len(digits) == 1 and first != "0":
            raise _BadPatternError
        return int(digits, 8)

    def _unicode_class(self) -> None:
        if self._text.startswith("{", self._at):
            ends = self._text.find("}", self._at, self._at + 40)
            name = self._text[self._at + 1 : ends] if ends > 0 else ""
            self._at = ends + 1
        else:
            name = self._text[self._at : self._at + 1]
            self._at += 1
        found = _UNICODE.fullmatch(name)
        if found is None or (found[1] not in _CATEGORIES and found[1] not in _SCRIPTS):
            raise _BadPatternError


def _number(digits: str) -> int:
    """At most one more than is allowed, however long the digits are."""
    return min(int(digits[:5]), _REPEATS_MAX + 1)
