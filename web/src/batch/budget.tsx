// What the loss is spent on: tokens that count, by source, by what they are and, in conversations, by who speaks.

import { question } from "../ask";
import { formatCount, visible } from "../format";
import { useLoaded } from "../load";
import type { RoleBudget } from "../wire/types";
import { KINDS, NO_SOURCE, type TokenBatch } from "./batch";

interface Share {
  readonly name: string;
  readonly colour: string;
  tokens: number;
  loss: number;
}

export function budgetOf(batch: TokenBatch): { sources: Share[]; kinds: Share[] } {
  const sources = batch.sources.map((source, number) => share(source.alias, `src-${number % 8}`));
  const kinds = KINDS.map((name) => share(name, "plain"));
  for (let index = 0; index < batch.ids.length; index++) {
    const counts = batch.mask[index] === 0 ? 0 : 1;
    add(sources[batch.source[index] ?? NO_SOURCE], counts);
    add(kinds[batch.kinds[index] ?? 0], counts);
  }
  return { sources, kinds: kinds.filter((one) => one.tokens > 0) };
}

export function Budget(props: { batch: TokenBatch }) {
  const { batch } = props;
  const { sources, kinds } = budgetOf(batch);
  const { loaded: roles } = useLoaded(question("roles", { address: batch.facts.address }));
  return (
    <>
      <Shares title="By source" shares={sources} />
      {roles.phase === "ready" && roles.value.by_role.length > 0 && (
        <>
          <Shares title="By role" shares={sharesOf(roles.value)} />
          {roles.value.cut !== "" && <p class="cut">Cut: {roles.value.cut}.</p>}
        </>
      )}
      <Shares title="By kind of token" shares={kinds} />
      {batch.cuts.length > 0 && <p class="cut">Sources and kinds are counted over {batch.cuts.join(", ")}.</p>}
    </>
  );
}

function Shares(props: { title: string; shares: readonly Share[] }) {
  const all = props.shares.reduce((sum, one) => sum + one.loss, 0);
  const most = Math.max(1, ...props.shares.map((one) => one.tokens));
  return (
    <section class="shares">
      <h3>{props.title}</h3>
      <table>
        <tbody>
          {props.shares.map((one) => (
            <tr key={one.name} title={`${formatCount(one.loss)} of ${formatCount(one.tokens)} tokens count`}>
              <th>
                <i class={`swatch tk ${one.colour}`} /> {visible(one.name)}
              </th>
              <td class="share-bar">
                <span class="all" style={{ width: `${(one.tokens / most) * 100}%` }}>
                  <span class="loss" style={{ width: `${one.tokens === 0 ? 0 : (one.loss / one.tokens) * 100}%` }} />
                </span>
              </td>
              <td class="number">{formatCount(one.loss)}</td>
              <td class="number soft">{all === 0 ? "–" : `${((one.loss / all) * 100).toFixed(1)} %`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function share(name: string, colour: string): Share {
  return { name, colour, tokens: 0, loss: 0 };
}

function add(share: Share | undefined, counts: number): void {
  if (share === undefined) return;
  share.tokens += 1;
  share.loss += counts;
}

function sharesOf(budget: RoleBudget): Share[] {
  return budget.by_role.map(({ role, tokens, loss }) => ({ name: role, colour: "plain", tokens, loss }));
}
