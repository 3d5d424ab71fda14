// Where the time went: a bar for each life, and the same as a table.

import { formatDuration, formatPlural, visible } from "../format";
import type { AccountName, LifeSum, RunLedger } from "../wire/types";
import { colourOf, segmentsOf } from "./accounts";
import { formatShare } from "./units";

export function Ledger(props: { ledger: RunLedger }) {
  const { ledger } = props;
  const widest = Math.max(...ledger.lives.map((life) => life.wall_ns), 1);
  return (
    <section class="ledger">
      <div class="section-head">
        <h2>Where the time went</h2>
        <span class="soft small">
          {formatDuration(ledger.wall_ns)} of device time, {formatPlural(ledger.ranks, "rank")}, {formatPlural(ledger.lives.length, "life", "lives")}
        </span>
      </div>
      <div class="ledger-bars">
        {ledger.lives.map((life) => (
          <Bar key={life.life} life={life} widest={widest} ledger={ledger} />
        ))}
      </div>
      <div class="ledger-tables">
        <AccountTable title="Account" names={ledger.account_names} spent={ledger.accounts} wall={ledger.wall_ns} prefix="" />
        <AccountTable title="Part of a step" names={ledger.part_names} spent={ledger.parts} wall={ledger.wall_ns} prefix="train." />
      </div>
    </section>
  );
}

function Bar(props: { life: LifeSum; widest: number; ledger: RunLedger }) {
  const { life, widest, ledger } = props;
  const says = new Map([...ledger.account_names.map((one) => [one.name, one.says] as const), ...ledger.part_names.map((one) => [`train.${one.name}`, one.says] as const)]);
  const name = life.life === life.last_life ? `life ${life.life}` : `lives ${life.life}–${life.last_life}`;
  const lost = life.lost_steps > 0 ? `, ${life.lost_steps} again later` : "";
  return (
    <div class="life-bar">
      <span class="life-name">{name}</span>
      <span class="life-track" role="img" aria-label={`${name}: ${formatDuration(life.wall_ns)}`}>
        {segmentsOf(life, widest).map((segment) => (
          <i
            key={segment.name}
            class={colourOf(segment.name)}
            style={{ width: `${100 * segment.width}%` }}
            title={`${segment.name.replace("train.", "train, ")} ${formatDuration(segment.ns)}, ${formatShare(segment.ns / life.wall_ns)} of this life: ${says.get(segment.name) ?? ""}`}
          />
        ))}
      </span>
      <span class="life-facts number">
        {formatDuration(life.wall_ns)} <span class="soft">· {formatPlural(life.kept_steps, "step")} kept{lost}</span>
      </span>
    </div>
  );
}

interface TableProps {
  readonly title: string;
  readonly names: readonly AccountName[];
  readonly spent: Readonly<Record<string, number>>;
  readonly wall: number;
  readonly prefix: string;
}

function AccountTable(props: TableProps) {
  const { names, spent, wall, prefix } = props;
  const shown = names.filter(({ name }) => (spent[name] ?? 0) > 0);
  const most = Math.max(...shown.map(({ name }) => spent[name] ?? 0), 1);
  return (
    <div class="wide">
      <table class="list accounts">
        <thead>
          <tr>
            <th>{props.title}</th>
            <th class="left">What it is</th>
            <th>Time</th>
            <th>Share</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(({ name, says }) => (
            <tr key={name} data-account={`${prefix}${name}`} data-ns={String(spent[name] ?? 0)}>
              <th>
                <i class={`swatch ${colourOf(`${prefix}${name}`)}`} /> {name}
              </th>
              <td class="left soft note" title={visible(says)}>
                {visible(says)}
              </td>
              <td>{formatDuration(spent[name] ?? 0)}</td>
              <td class="total">
                {wall > 0 ? formatShare((spent[name] ?? 0) / wall) : "–"}
                <i class="bar" style={{ width: `${(100 * (spent[name] ?? 0)) / most}%` }} aria-hidden="true" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
