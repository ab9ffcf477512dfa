"""The audit: every claim with its finding, in the order of the topics, and the contradictions among the notes with their resolution."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from calc.errors import BadInputError
from reports.lecture.claim import LectureClaim, Topic
from reports.lecture.compute import COMPUTE
from reports.lecture.cruncher import CRUNCHER
from reports.lecture.disputes import DISPUTES, Dispute
from reports.lecture.flops import FLOPS
from reports.lecture.formats import FORMATS
from reports.lecture.fp16 import FP16
from reports.lecture.gradients import GRADIENTS
from reports.lecture.lab import Lab
from reports.lecture.largest import LARGEST
from reports.lecture.learning import LEARNING
from reports.lecture.mfu import MFU
from reports.lecture.precision import PRECISION
from reports.lecture.sources import notes
from reports.lecture.system import plain
from reports.lecture.tensors import TENSORS
from reports.lecture.training import TRAINING
from reports.lecture.verdicts import STANDS, VERDICTS, ClaimFinding

TOPICS: tuple[Topic, ...] = (
    TRAINING,
    LARGEST,
    COMPUTE,
    FLOPS,
    MFU,
    FORMATS,
    FP16,
    PRECISION,
    TENSORS,
    GRADIENTS,
    CRUNCHER,
    LEARNING,
)


@dataclass(frozen=True, slots=True)
class AuditedClaim:
    """A claim with its topic and finding."""

    topic: str
    claim: LectureClaim
    finding: ClaimFinding


@dataclass(frozen=True, slots=True)
class SettledDispute:
    """A contradiction among the notes: ids of the claims that hold (``right``) and of the others."""

    dispute: Dispute
    right: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The audited claims, by id."""

    claims: tuple[AuditedClaim, ...]

    def __getitem__(self, name: str) -> AuditedClaim:
        for audited in self.claims:
            if audited.claim.id == name:
                return audited
        raise BadInputError(f"no claim {name[:40]!r}: there are {len(self.claims)}, from {self.claims[0].claim.id} on")

    @property
    def tally(self) -> dict[str, int]:
        """Verdict → number of claims, in the order of ``VERDICTS``."""
        return {verdict: sum(c.finding.verdict == verdict for c in self.claims) for verdict in VERDICTS}

    @property
    def settled(self) -> tuple[SettledDispute, ...]:
        """The contradictions, resolved by the verdicts of their claims."""
        return tuple(self._settle(dispute) for dispute in DISPUTES)

    def _settle(self, dispute: Dispute) -> SettledDispute:
        stands = {name: self[name].finding.verdict in STANDS for name in dispute.claims}
        return SettledDispute(
            dispute, tuple(n for n, right in stands.items() if right), tuple(n for n, right in stands.items() if not right)
        )


def claims() -> Iterator[tuple[str, LectureClaim]]:
    """(title of the topic, claim) for every claim."""
    for topic in TOPICS:
        for claim in topic:
            yield topic.title, claim


def audit(lab: Lab, only: Iterable[str] | None = None, progress: Callable[[str], None] = lambda _: None) -> Audit:
    """The findings of all claims, or of ``only`` the named ones. Raises ``BadInputError`` for an unknown claim."""
    names = None if only is None else set(only)
    ids = [claim.id for _, claim in claims()]
    for name in names or ():
        if name not in ids:
            near = difflib.get_close_matches(name, ids, n=1)
            raise BadInputError(f"no claim {name[:40]!r}{f'; did you mean {near[0]}?' if near else ': lecture.json lists them'}")
    audited = []
    at = ""
    for topic, claim in claims():
        if names is None or claim.id in names:
            if topic != at:
                progress(f"claims: {topic}")
                at = topic
            audited.append(AuditedClaim(topic, claim, claim.find(lab)))
    return Audit(tuple(audited))


def command_of(claim: LectureClaim) -> str:
    """The command that computes a claim's finding and shows it."""
    return f"napkin lecture --claim {claim.id}"


def claim_json(audited: AuditedClaim) -> dict[str, Any]:
    """A claim as a JSON-ready dictionary. Integers above 2**53 are strings."""
    f = audited.finding
    return {
        "id": audited.claim.id,
        "topic": audited.topic,
        "notes": list(notes()[audited.claim.id]),
        "claim": audited.claim.says,
        "verdict": f.verdict,
        "value": plain(f.value),
        "unit": f.unit or None,
        "because": f.because,
        "computed_by": f.computed_by,
        "rests_on": f.rests_on,
        "command": command_of(audited.claim),
    }


def to_json(audited: Audit, systems: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    """The ``"schema": 1`` document of the audit."""
    return {
        "schema": 1,
        "tally": audited.tally,
        "claims": [claim_json(c) for c in audited.claims],
        "contradictions": [
            {"about": s.dispute.about, "right": list(s.right), "not": list(s.others), "settled": s.dispute.settled} for s in audited.settled
        ],
        "systems": list(systems),
    }
