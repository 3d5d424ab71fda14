// One token: what it is, where it came from, and the four stages of its sample.

import { question } from "../ask";
import { formatCount, visible } from "../format";
import { useLoaded } from "../load";
import { addressRoute } from "../route";
import { documentAt, KINDS, textOf, type TokenBatch } from "./batch";
import { StagesView } from "./stages";

interface TokenPanelProps {
  readonly batch: TokenBatch;
  readonly index: number;
  readonly address: string;
  /** Where the batch is what a loop shows: nobody knows where its tokens came from. */
  readonly tap: string | null;
  readonly choose: (index: number) => void;
}

export function TokenPanel(props: TokenPanelProps) {
  const { batch, index, address } = props;
  const row = batch.firstRow + Math.floor(index / batch.length);
  const token = index % batch.length;
  const document = documentAt(batch, row, token);
  const { loaded: detail } = useLoaded(question("token", { address, tap: props.tap }));
  const origin = detail.phase === "ready" ? detail.value.origin[0] : undefined;
  const source = document < 0 ? null : batch.sources[batch.documents.source[document] ?? 0];
  const sample = batch.documents.sample[document] ?? 0;
  const facts: [string, string][] = [
    ["id", String(batch.ids[index])],
    ["kind", KINDS[batch.kinds[index] ?? 0] ?? "?"],
    ["segment", String(batch.segments[index])],
    ["position", String(batch.positions[index])],
    ["loss", batch.mask[index] === 0 ? "does not count" : "counts"],
    ...[...batch.numeric].map(([name, column]): [string, string] => [visible(name), numberText(column[index] ?? NaN)]),
    ["bytes", detail.phase === "ready" ? (detail.value.bytes?.replaceAll(/(..)(?=.)/g, "$1 ") ?? "unknown") : "…"],
  ];
  return (
    <section class="token-panel" aria-label="Chosen token">
      <h3>
        <span class="token-text">{textOf(batch, index)}</span>
        <span class="soft">
          row {row}, token {formatCount(token)}
        </span>
      </h3>
      <dl class="token-facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {props.tap !== null ? (
        <p class="soft">The training loop shows this of its own arrays; where its tokens came from it does not say.</p>
      ) : source === null || source === undefined ? (
        <p class="soft">Padding: it comes from nowhere.</p>
      ) : (
        <>
          <p class="origin-line">
            from <a href={addressRoute(`${source.version}/row/${sample}`)}>{`${source.version}/row/${sample}`}</a>
            {origin !== undefined && (
              <span class="soft">
                {" "}
                · {visible(origin.shard)}
                {origin.byte_range !== null && `, bytes ${formatCount(origin.byte_range[0])}–${formatCount(origin.byte_range[1])}`}
              </span>
            )}
          </p>
          <StagesView {...props} />
        </>
      )}
    </section>
  );
}

function numberText(value: number): string {
  return Number.isInteger(value) ? formatCount(value) : value.toPrecision(5);
}
