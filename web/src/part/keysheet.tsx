// The sheet that `?` opens: every key that is bound on this page right now.

import { useEffect, useRef, useState } from "preact/hooks";

import { boundKeys } from "../keys";

export function KeySheet(props: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  // Taken once: while the sheet is open nothing else may bind keys.
  const [bindings] = useState(() => [...boundKeys()]);
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
        <dl>
          {bindings.map((binding) => (
            <div key={binding.keys}>
              <dt>
                {binding.keys.split(" ").map((key) => (
                  <kbd key={key}>{key.replace("Arrow", "").replace("Left", "←").replace("Right", "→")}</kbd>
                ))}
              </dt>
              <dd>{binding.says}</dd>
            </div>
          ))}
        </dl>
        <form method="dialog">
          <button type="submit">Close</button>
        </form>
      </div>
    </dialog>
  );
}
