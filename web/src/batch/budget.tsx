// What the loss is spent on: tokens that count, by source, by what they are, and by who speaks where a template says so.

import { formatCount, visible } from "../format";
import { KINDS, NO_SOURCE, PADDING, SPECIAL, textOf, type TokenBatch } from "./batch";

interface Share {
  readonly name: string;
  readonly colour: string;
  tokens: number;
  loss: number;
}

const ROLE_TOKENS_MAX = 24;
/** Special tokens after which templates name the role: ChatML, Llama 3, and their like. */
const OPENS = /start|begin_of_turn|header/i;

export function budgetOf(batch: TokenBatch): { sources: Share[]; kinds: Share[]; roles: Share[] } {
  const sources = batch.sources.map((source, number) => share(source.alias, `src-${number % 8}`));
  const kinds = KINDS.map((name) => share(name, "plain"));
  const roles = new Map<string, Share>();
  const named = new Map<string, string>();
  let role: Share | null = null;
  for (let index = 0; index < batch.ids.length; index++) {
    const kind = batch.kinds[index] ?? 0;
    const counts = batch.mask[index] === 0 ? 0 : 1;
    const source = batch.source[index] ?? NO_SOURCE;
    if (index % batch.length === 0 || batch.segments[index] !== batch.segments[index - 1]) role = null;
    add(sources[source], counts);
    add(kinds[kind], counts);
    if (kind === SPECIAL && OPENS.test(textOf(batch, index))) {
      const key = roleKey(batch, index);
      const name = named.get(key) ?? roleName(batch, index);
      named.set(key, name);
      role = roles.get(name) ?? share(name, "plain");
      roles.set(name, role);
    }
    if (role !== null && kind !== PADDING) add(role, counts);
  }
  return { sources, kinds: kinds.filter((one) => one.tokens > 0), roles: [...roles.values()] };
}

export function Budget(props: { batch: TokenBatch }) {
  const { sources, kinds, roles } = budgetOf(props.batch);
  return (
    <>
      <Shares title="By source" shares={sources} />
      {roles.length > 0 && <Shares title="By role, as the template names it" shares={roles} />}
      <Shares title="By kind of token" shares={kinds} />
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
            <tr key={one.name}>
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

/** The numbers of the few tokens that name a role, so that each spelling is read once. */
function roleKey(batch: TokenBatch, index: number): string {
  return Array.from({ length: ROLE_TOKENS_MAX }, (_, by) => batch.ids[index + 1 + by]).join(" ");
}

function roleName(batch: TokenBatch, index: number): string {
  let name = "";
  for (let at = index + 1; at <= index + ROLE_TOKENS_MAX && at < batch.ids.length; at++) {
    if (batch.kinds[at] === SPECIAL || batch.kinds[at] === PADDING) break;
    name += textOf(batch, at);
    if (name.includes("⏎")) break;
  }
  return name.split("⏎")[0]?.trim() || "unnamed";
}
