// The sheet that `?` opens: every key that is bound on this page right now.

import { useEffect, useRef, useState } from "preact/hooks";

import { workingKeys, SCOPES, type Binding } from "../keys";

/** Keys whose names are long. */
const SIGNS: Readonly<Record<string, string>> = { ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

export function KeySheet(props: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  // Taken once, so that the sheet does not change under the reader.
  const [scopes] = useState(() => SCOPES.map((scope) => ({ scope, bindings: workingKeys(scope) })));
  useEffect(() => dialog.current?.showModal(), []);
  const closeOnKey = (event: KeyboardEvent) => {
    if (event.key === "?") dialog.current?.close();
  };
  const closeOnBackdrop = (event: MouseEvent) => {
    if (event.target === dialog.current) dialog.current?.close();
  };
  return (
    <dialog ref={dialog} aria-label="Keys" onClose={props.close} onKeyDown={closeOnKey} onClick={closeOnBackdrop}>
      <div class="sheet">
        <h2>Keys</h2>
        <div class="sheet-lists">
          {scopes.map(({ scope, bindings }) => bindings.length > 0 && <KeyList key={scope} scope={scope} bindings={bindings} />)}
        </div>
        <form method="dialog">
          <button type="submit">Close</button>
        </form>
      </div>
    </dialog>
  );
}

function KeyList(props: { scope: string; bindings: readonly Binding[] }) {
  return (
    <>
      <h3>{props.scope}</h3>
      <dl>
        {props.bindings.map((binding) => (
          <div key={binding.keys}>
            <dt>
              {binding.keys.split(" ").map((key) => (
                <kbd key={key}>{SIGNS[key] ?? key}</kbd>
              ))}
            </dt>
            <dd>{binding.says}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}
