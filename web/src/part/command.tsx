// A command that the reader can copy into a terminal. What is shown is what is copied.

import { useState } from "preact/hooks";

export function Command(props: { text: string }) {
  const [said, setSaid] = useState("Copy");
  const copy = () => {
    // The clipboard exists only on secure origins (https or loopback); elsewhere the text can be selected.
    navigator.clipboard
      ?.writeText(props.text)
      .then(() => setSaid("Copied"))
      .catch(() => setSaid("Select it"));
    setTimeout(() => setSaid("Copy"), 1500);
  };
  return (
    <div class="command">
      <code>{props.text}</code>
      {"clipboard" in navigator && (
        <button type="button" class="quiet" onClick={copy} aria-live="polite">
          {said}
        </button>
      )}
    </div>
  );
}
