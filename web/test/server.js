// A real HTTP server for the tests of asking. It keeps nothing: the first segment of a path says what to answer, as base64url of
// a JSON list of status, type and body.

import { createServer } from "node:http";

export async function setup(project) {
  const server = createServer((request, response) => {
    const [status, type, body] = JSON.parse(Buffer.from(request.url.split("/")[1], "base64url").toString());
    response.writeHead(status, { "content-type": type }).end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  project.provide("server", `http://127.0.0.1:${server.address().port}/`);
  return () => server.close();
}
