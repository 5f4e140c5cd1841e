"""What may leave the node: secrets are masked here, before anything is written.

A masked value keeps its length and a fingerprint, ``<redacted len=40 id=1f0c93aa>``, so that "differs on
rank 7" stays visible. The fingerprint is keyed with a salt of the bundle that is never written down: without
a key a short password could be found by trying. Every rule takes time linear in the text, whatever it holds.
Python >= 3.8, standard library only.
"""

import os
import re
from typing import Dict, Iterator, List, Match, Optional, Pattern, Tuple

from . import redact_names
from .digest import hmac_sha256

_OWN_SALT = os.urandom(16)
_MASKED = re.compile(r"<redacted len=\d+ id=[0-9a-f]{8}>")

_TOKEN_SHAPES: Tuple[Tuple[Tuple[str, ...], Pattern[str]], ...] = tuple(
    (hints, re.compile(pattern))
    for hints, pattern in (
        # AWS access key ids, with the key itself where it stands behind
        (
            ("AKIA", "ASIA", "AGPA", "AIDA", "AROA"),
            r"(?<![A-Za-z0-9])A(?:KI|SI|GP|ID|RO)A[0-9A-Z]{16}"
            r"(?:[^A-Za-z0-9/+\n]{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+]))?",
        ),
        # Hugging Face, GitHub, GitLab, npm
        (("hf_", "api_org_"), r"(?<![A-Za-z0-9])(?:hf_|api_org_)[A-Za-z0-9]{16,}"),
        (("gh",), r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{20,}"),
        (("github_pat_",), r"github_pat_\w{20,}"),
        (("glpat-", "gldt-", "glrt-", "glcbt-"), r"gl(?:pat|dt|rt|cbt)-[\w-]{16,}"),
        (("npm_",), r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{30,}"),
        (("pypi-",), r"(?<![A-Za-z0-9])pypi-[\w-]{16,}"),
        # Slack, also its webhooks
        (("xox", "xapp-"), r"(?<![A-Za-z0-9])(?:xox[abeoprs]|xapp)-[\w-]{10,}"),
        (("hooks.slack.com/",), r"hooks\.slack\.com/[\w/-]{8,}"),
        # model APIs: OpenAI and those that took its form over, Google, NVIDIA, Groq, Replicate
        (("sk-", "sk_live_", "sk_test_"), r"(?<![A-Za-z0-9])(?:sk-|sk_live_|sk_test_)[\w-]{16,}"),
        (("AIza",), r"AIza[\w-]{30,}"),
        (("ya29.",), r"ya29\.[\w.-]{8,}"),
        (("nvapi-",), r"nvapi-[\w-]{16,}"),
        (("gsk_", "r8_", "pplx-"), r"(?<![A-Za-z0-9])(?:gsk_|r8_|pplx-)[A-Za-z0-9]{20,}"),
        # Databricks, SendGrid, DigitalOcean, HashiCorp Vault
        (("dapi",), r"(?<![A-Za-z0-9])dapi[0-9a-f]{32}(?:-\d)?"),
        (("SG.",), r"(?<![A-Za-z0-9])SG\.[\w-]{16,64}\.[\w-]{16,128}"),
        (("do", "hvs.", "hvb."), r"(?<![A-Za-z0-9])(?:do[opr]_v1_[0-9a-f]{32,}|hv[sb]\.[\w-]{20,})"),
        # JSON web tokens; the guard before them takes the whole class, so that no run is scanned twice
        (("eyJ",), r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
        # a private key to its end, or to the end of the text when the tail is missing
        (
            ("PRIVATE KEY",),
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"(?s:.*?)(?:-----END [A-Z ]{0,40}-----|\Z)",
        ),
    )
)

_IN_URL = re.compile(r"://(?:[^/\s:@\"'<>]{0,256}:([^/\s@\"'<>]{1,512})@|([^/\s:@\"'<>]{16,512})@)")
"""``scheme://user:password@`` (1), ``scheme://token@`` (2)."""

_BEARER = re.compile(r"(?i)(?<![a-z])bearer[ \t]{1,4}")
_HEADER = re.compile(r"(?i)(?:authorization|(?<![a-z])(?:set-)?cookie)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?")
_REST_OF_LINE = re.compile(r"(?:[^\n\"'\\]|\\[^n])+")
_NAMED = re.compile(
    r"(?P<key>(?i:"
    r"pass(?:wo?r?d|phrase)s?|secrets?|tokens?|credentials?|api[-_ ]?keys?"
    r"|(?:access|secret|private|account|signing|encryption|license|shared)"
    r"[-_ ]?(?:access[-_ ]?)?key(?:[-_]?id)?"
    r"|(?<![a-z])sig(?:nature)?(?==)|(?<![a-z])(?:psk|jwt|dsn)"
    r"|connection[-_ ]?string|webhook(?:[-_ ]?url)?"
    r"|(?<=[;&?])pwd)"
    r"|(?<![a-z])(?:PASS|_KEY|_AUTH|_PAT|_DSN|_PSK|_SAS|_CERT|_PEM))"
    r"(?P<close>[\"']?)(?P<gap>[ \t]{0,4})"
    r"(?:(?P<sign>[=:])(?!=)(?:(?P<code>(?<= =)[ \t])|)[ \t]{0,4}|(?<=[ \t]))(?P<quote>[\"']?)"
)
"""A name that stands for a secret, and the ``=``, ``:`` or blank between it and its value."""

_HINTS: Tuple[str, ...] = (
    *("pass", "secret", "token", "credential", "key", "sig", "psk", "jwt", "dsn", "string", "webhook", "pwd"),
    *("auth", "_pat", "_sas", "_cert", "_pem", "bearer", "cookie"),
)
"""In small letters: each name of ``_NAMED``, ``_HEADER`` and ``_BEARER`` holds one of these (a test)."""
_SHAPE_HINTS: Tuple[str, ...] = tuple(hint for hints, _ in _TOKEN_SHAPES for hint in hints)

_VALUE = re.compile(r"(?:[^\s&;,\"'<]|,(?!\s|[\"']|[A-Za-z_][\w.]{0,40}[ \t]?[=:]|\Z))+")
"""A comma ends a value only where another name, a blank or the end follows."""
_HARMLESS_VALUE = re.compile(
    r"(?i)[-+]?\d{1,10}(?:\.\d{0,10})?(?:e[-+]?\d{1,3})?[a-z%]{0,3}[)\]}.]{0,3}"
    r"|(?:none|null|true|false)[)\]}.]{0,3}|[*.]{1,40}"
)
_CODE = re.compile(r"[A-Za-z_][\w.]{0,80}[(\[]|(?:self|cls|os|args|config|cfg)\.[A-Za-z_]")
"""A call or a subscript behind ``name = `` or ``token=``: source text, whose evidence is the call."""

_OPTION = re.compile(r"--?([A-Za-z0-9][\w.-]{0,80})")
_ASSIGNMENT = re.compile(r"([+~]{0,2}[A-Za-z_][\w./-]{0,120})=(?s:(.*))")


def mask(value: str, salt: bytes) -> str:
    """What stands in the place of a secret. Equal values of one bundle have equal fingerprints."""
    data = value.encode("utf-8", "surrogatepass")
    return f"<redacted len={len(value)} id={hmac_sha256(salt or _OWN_SALT, data)[:8]}>"


def environment(variables: Dict[str, str], salt: bytes) -> Dict[str, str]:
    """The variables with the value of all but the known harmless ones masked; no name is left out.

    The deny-list beats the allow-list, and what is kept is scrubbed like any text.
    """
    return {
        name: scrub(value, salt) if redact_names.may_be_kept(name) else mask(value, salt)
        for name, value in variables.items()
    }


def named_value(name: str, value: str, salt: bytes) -> str:
    """The value of something that has a name (a local variable, a setting): masked when the name says so."""
    if redact_names.is_secret(name) and not _HARMLESS_VALUE.fullmatch(value):
        return mask(value, salt)
    return scrub(value, salt)


def cmdline(args: List[str], salt: bytes) -> List[str]:
    """The arguments with the values of secret options and assignments masked, and the rest scrubbed."""
    shown: List[str] = []
    secret_next = False
    for arg in args:
        if secret_next and not arg.startswith("--"):
            shown.append(arg if _MASKED.fullmatch(arg) else mask(arg, salt))
            secret_next = False
            continue
        name, value = _split_option(arg)
        secret_next = name is not None and value is None and redact_names.is_secret(name)
        if name is not None and value and redact_names.is_secret(name) and not _MASKED.match(value):
            shown.append(arg[: len(arg) - len(value)] + mask(value, salt))
        else:
            shown.append(scrub(arg, salt))
    return shown


def _split_option(arg: str) -> Tuple[Optional[str], Optional[str]]:
    """``--name`` → (name, None); ``--name=value`` and ``name=value`` → (name, value); else (None, None)."""
    option = _OPTION.fullmatch(arg)
    if option is not None:
        return option[1], None
    assignment = _ASSIGNMENT.fullmatch(arg.lstrip("-"))
    return (assignment[1], assignment[2]) if assignment is not None else (None, None)


def scrub(text: str, salt: bytes) -> str:
    """A log excerpt, a title, a kernel line, a local's text: what looks like a secret in it is masked.

    Known token shapes, passwords in URLs, private keys, and values that follow a telling name (``token=``,
    ``"api_key": ``, ``--password ``, ``Authorization: ``). Numbers, ``None`` and the like stay, so that
    ``max_tokens=4096`` can be read. Scrubbing twice changes nothing.
    """
    if _holds(text, _SHAPE_HINTS):
        for hints, shape in _TOKEN_SHAPES:
            if _holds(text, hints):
                text = shape.sub(lambda match: mask(match[0], salt), text)
    if "://" in text:
        text = _IN_URL.sub(lambda match: _mask_in_url(match, salt), text)
    # beyond ASCII the patterns take more letters for equal than str.lower does (the long s, the Kelvin sign)
    if text.isascii() and not _holds(text.lower(), _HINTS):
        return text
    return _replace(text, _named_spans(text), salt)


def _holds(text: str, hints: Tuple[str, ...]) -> bool:
    """Most lines hold nothing that could be a secret: this tells it at a tenth of the patterns' price."""
    for hint in hints:  # noqa: SIM110 - the generator of any() costs more than the search
        if hint in text:
            return True
    return False


def _mask_in_url(match: Match[str], salt: bytes) -> str:
    group = 1 if match[1] is not None else 2
    start, end = match.start(group) - match.start(), match.end(group) - match.start()
    return match[0][:start] + mask(match[group], salt) + match[0][end:]


def _replace(text: str, spans: Iterator[Tuple[int, int]], salt: bytes) -> str:
    parts: List[str] = []
    done = 0
    for start, end in spans:
        parts += [text[done:start], mask(text[start:end], salt)]
        done = end
    return "".join(parts) + text[done:] if parts else text


def _named_spans(text: str) -> Iterator[Tuple[int, int]]:
    """Where the values of telling names stand, in order, none within another."""
    patterns = (_HEADER, _BEARER, _NAMED)
    found = [match for pattern in patterns for match in pattern.finditer(text)]
    done = 0
    for match in sorted(found, key=lambda match: match.end()):
        if match.end() < done:
            continue
        span = _value_span(text, match)
        if span is None or _MASKED.match(text, span[0]):
            continue
        start, end = span
        if end - start <= 40 and _HARMLESS_VALUE.fullmatch(text, start, end):
            continue
        done = end
        yield span


def _value_span(text: str, match: Match[str]) -> Optional[Tuple[int, int]]:
    """Where the value behind a telling name stands; None when the words only look like name and value."""
    start = match.end()
    if match.re is _HEADER:
        return _matched(_REST_OF_LINE, text, start)
    if match.re is _BEARER:
        return _matched(_VALUE, text, start)
    if match["sign"] is None and (match["close"] or not _is_option(text, match.start())):
        return None
    if redact_names.harmless_before(text, match.start(), match.end("key")):
        return None
    if match["quote"]:
        stop = text.find(match["quote"], start, start + 4096)
        line = text.find("\n", start, start + 4096)
        if stop > start and not 0 <= line < stop:
            return start, stop
    elif _CODE.match(text, start) and (match["code"] or match["key"].lower().startswith("token")):
        return None
    return _matched(_VALUE, text, start)


def _matched(pattern: Pattern[str], text: str, start: int) -> Optional[Tuple[int, int]]:
    value = pattern.match(text, start)
    return (start, value.end()) if value is not None else None


def _is_option(text: str, start: int) -> bool:
    """Whether the word around ``start`` begins with a dash: ``--hub-token value``."""
    words = ("." + text[max(0, start - 64) : start]).split()
    return words[-1].lstrip(".\"'").startswith("-") and not text[start - 1 : start].isspace()
