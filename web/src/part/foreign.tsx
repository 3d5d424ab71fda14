// Foreign text on a page: text nodes only, and every character that would reorder, hide or break what stands around
// it is drawn as a small mark with its number. Preact escapes markup; this is for what escaping leaves.

/** Characters that reorder, hide or break a line; the second keeps them when text is split at them. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\u034f\u115f\u1160\u3164\uffa0\u2800]/u;
const PIECES = /([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\u034f\u115f\u1160\u3164\uffa0\u2800])/u;
const NAMED: Readonly<Record<string, string>> = { "\n": "⏎", "\t": "⇥", "\r": "␍", "\u0000": "␀", "\u001b": "␛" };

/** `lines` keeps line breaks as breaks too; without it text stays on one line. Without `apart` whatever is around has to keep the
 * direction of the text from acting on its neighbours. */
export function Foreign(props: { text: string; lines?: boolean; apart?: boolean }) {
  const { text, lines = false, apart = true } = props;
  const shown = HIDDEN.test(text)
    ? text.split(PIECES).map((piece, at) => (at % 2 === 0 ? piece : <Mark key={at} sign={piece} breaks={lines && piece === "\n"} />))
    : text;
  return apart ? <bdi>{shown}</bdi> : <>{shown}</>;
}

function Mark(props: { sign: string; breaks: boolean }) {
  const number = (props.sign.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
  return (
    <>
      <span class="mark-sign" title={`U+${number}`}>
        {NAMED[props.sign] ?? `U+${number}`}
      </span>
      {props.breaks && "\n"}
    </>
  );
}
