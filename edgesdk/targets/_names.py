"""Identifiers and literals made from user text, for every language that the emitted projects are written in.

A package's name is free text: spaces, quotes, emoji, a leading digit, a keyword. An identifier that had to lose
something gets six hexadecimal digits of the name's sha256 at its end, so that ``my net`` and ``my_net`` can live in one
app; a name that is a valid identifier already is kept as it is.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

# Java Language Specification §3.9 (reserved words, literals, contextual ones that can't name a package part) and the
# hard keywords of Kotlin, since the namespace is written in both.
_JAVA = (
    "abstract assert boolean break byte case catch char class const continue default do double else enum extends false "
    "final finally float for goto if implements import instanceof int interface long native new null package private "
    "protected public return short static strictfp super switch synchronized this throw throws transient true try void "
    "volatile while _ as fun in is object typealias typeof val var when record sealed permits yield"
)
# The Swift Programming Language, "Keywords and Punctuation", and modules that every app already has.
_SWIFT = (
    "associatedtype class deinit enum extension fileprivate func import init inout internal let open operator private "
    "precedencegroup protocol public rethrows static struct subscript typealias var break case catch continue default "
    "defer do else fallthrough for guard if in repeat return throw switch where while Any as await false is nil self "
    "Self super throws true try Swift Foundation UIKit SwiftUI CoreML Accelerate EdgeSDK Bundle Module Package "
    "executorch onnxruntime"
)
_JAVA_WORDS, _SWIFT_WORDS = frozenset(_JAVA.split()), frozenset(_SWIFT.split())
_LONGEST = 64


def clean(text: str) -> str:
    """The text without lone surrogates (file names that aren't UTF-8), so that it can be written anywhere."""
    return text.encode("utf-8", "replace").decode("utf-8")


def java_identifier(name: str) -> str:
    """A valid Java and Kotlin identifier, usable as a part of a package name: ``mobilenet``, ``my_net_v2_1f0c9a``."""
    return _identifier(name, _JAVA_WORDS)


def swift_identifier(name: str) -> str:
    """A valid Swift module and type name."""
    return _identifier(name, _SWIFT_WORDS)


def swift_type(name: str) -> str:
    """A Swift type's name, never the module's: no type may share its module's name. ``my_net`` → ``MyNetModel``."""
    module = swift_identifier(name)
    return "".join(part[:1].upper() + part[1:] for part in module.split("_")) + "Model"


def asset_name(file_name: str) -> str:
    """A file name that Android's asset merger keeps and every file system takes: ``mobilenet.edge``.

    aapt drops assets that begin with a dot or end with ``~`` (its default ``ignoreAssetsPattern``).
    """
    stem, dot, suffix = file_name.rpartition(".")
    return _portable(stem if dot else file_name, "model") + (f".{suffix}" if dot else "")


def maven_artifact(name: str) -> str:
    """A Maven artifactId: letters, digits, dot, hyphen and underscore (Maven's own id pattern)."""
    return _portable(name, "model")


def maven_version(version: str) -> str:
    """A Maven version that Maven and Gradle take as a fixed one.

    Refused by Maven: ``\\ / : " < > | ? * [ ] ( ) ,`` and space. Special to the tools: LATEST and RELEASE (Maven),
    ``latest.…`` and a ``+`` at the end (Gradle).
    """
    cleaned = re.sub(r"[^A-Za-z0-9._+-]+", "-", _ascii(version)).strip("._+-")[:_LONGEST].strip("._+-") or "0"
    if cleaned.lower() in {"latest", "release"} or cleaned.lower().startswith("latest."):
        cleaned = f"v-{cleaned}"
    return cleaned if cleaned == version else f"{cleaned}-{_tag(version)}"


def kotlin_string(text: str) -> str:
    """A Kotlin string literal, quotes included. ``$`` starts a template there and is escaped."""
    plain = {"\\": "\\\\", '"': '\\"', "$": "\\$", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(plain.get(c) or (c if c.isprintable() else _utf16(c)) for c in clean(text)) + '"'


def java_string(text: str) -> str:
    """A Java string literal, quotes included, in ASCII: javac reads ``\\u`` escapes under any encoding."""
    plain = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(plain.get(c) or (c if " " <= c <= "~" else _utf16(c)) for c in clean(text)) + '"'


def swift_string(text: str) -> str:
    """A Swift string literal, quotes included. Interpolation begins with a backslash, which is escaped."""
    plain = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(plain.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):X}}}") for c in clean(text)) + '"'


def xml_text(text: str) -> str:
    """Text without the characters that XML 1.0 forbids; the markup itself is escaped by the template."""
    return "".join(c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" else "\ufffd"
                   for c in clean(text))  # fmt: skip


def pom_text(text: str) -> str:
    """Text without ``${``, which Maven would replace by a property's value; POMs have no escape for it."""
    return text.replace("${", "$ {")


def _identifier(name: str, reserved: frozenset[str]) -> str:
    word = re.sub(r"[^A-Za-z0-9_]+", "_", _ascii(name)).strip("_")[:_LONGEST].strip("_")
    if word and word[0].isdigit():
        word = f"n{word}"
    if word == name and word not in reserved:
        return word
    return f"{word or 'model'}_{_tag(name)}"


def _portable(name: str, fallback: str) -> str:
    word = re.sub(r"[^A-Za-z0-9._-]+", "_", _ascii(name)).strip("._-~")[:_LONGEST].strip("._-~")
    return word if word == name else f"{word or fallback}_{_tag(name)}"


def _ascii(text: str) -> str:
    """Letters without their accents; what has no ASCII form is kept, and replaced by the caller."""
    return "".join(c for c in unicodedata.normalize("NFKD", clean(text)) if not unicodedata.combining(c))


def _tag(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def _utf16(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
