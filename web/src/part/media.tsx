// Pictures, sound and film, from our own server, under types that it recognised itself. Anything else is its children.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { formatBytes } from "../format";

export function Media(props: { kind: string; address: string; size: number | null; children?: ComponentChildren }) {
  const { kind, address } = props;
  const [broken, setBroken] = useState(false);
  if (broken) return <p class="cut">The browser cannot show this {kind}. The bytes themselves are whole.</p>;
  if (kind === "image") return <img class="media" src={address} alt="" loading="lazy" onError={() => setBroken(true)} />;
  if (kind === "audio") return <audio class="media" src={address} controls preload="metadata" onError={() => setBroken(true)} />;
  if (kind === "video") return <video class="media" src={address} controls preload="metadata" onError={() => setBroken(true)} />;
  return (
    <>
      {props.children}
      {kind === "bytes" && props.size !== null && (
        <a class="small" href={address} download>
          Save {formatBytes(props.size)}
        </a>
      )}
    </>
  );
}
