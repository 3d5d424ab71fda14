// Home: which Penstock this is, and what `penstock doctor` says about the machine it runs on.

import { question } from "../ask";
import { formatPlural, formatWhen, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Outcome } from "../part/state";
import type { DoctorCheck, DoctorReport } from "../wire/types";

type Verdict = DoctorCheck["verdict"];

/** Verdicts for those who hear the page, and for those who see it. */
const WORDS: Readonly<Record<Verdict, string>> = { ok: "fine", warn: "warning", fail: "problem", info: "for information" };
const MARKS: Readonly<Record<Verdict, string>> = { ok: "✓", warn: "!", fail: "✕", info: "i" };

export function DoctorPage() {
  const { loaded, again } = useLoaded(question("doctor"));
  useKeys("This page", [{ keys: "r", says: "Examine again", run: again }]);
  return (
    <>
      <h1>Machine</h1>
      <Outcome of={loaded} again={again} show={(doctor) => <Examination doctor={doctor} again={again} />} />
    </>
  );
}

function Examination(props: { doctor: DoctorReport; again: () => void }) {
  const { version, checks, examined_ms } = props.doctor;
  return (
    <>
      <p class="lead">
        Penstock {visible(version)} on the machine that serves this page. {summary(checks)} Examined {formatWhen(examined_ms)}.
      </p>
      <ul class="checks">
        {checks.map((check) => (
          <CheckLine key={check.name} check={check} />
        ))}
      </ul>
      <div class="foot">
        <Command text="penstock doctor" />
        <button type="button" onClick={props.again}>
          Examine again
        </button>
      </div>
    </>
  );
}

function CheckLine(props: { check: DoctorCheck }) {
  const { name, verdict, value, hint } = props.check;
  return (
    <li class={`check ${verdict}`} data-row tabIndex={-1}>
      <span class="mark" role="img" aria-label={WORDS[verdict]} title={WORDS[verdict]}>
        {MARKS[verdict]}
      </span>
      <span class="check-name">{visible(name)}</span>
      <span class="check-value">
        {visible(value)}
        {hint !== "" && <span class="hint">{visible(hint)}</span>}
      </span>
    </li>
  );
}

function summary(checks: readonly DoctorCheck[]): string {
  const problems = checks.filter((check) => check.verdict === "fail").length;
  const warnings = checks.filter((check) => check.verdict === "warn").length;
  if (problems + warnings === 0) return `No problem in ${formatPlural(checks.length, "check")}.`;
  const parts = [problems > 0 && formatPlural(problems, "problem"), warnings > 0 && formatPlural(warnings, "warning")];
  return `${parts.filter(Boolean).join(" and ")} in ${formatPlural(checks.length, "check")}.`;
}
