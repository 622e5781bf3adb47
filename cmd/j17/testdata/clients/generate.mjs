// Makes TypeScript types of OpenAPI documents: node generate.mjs TOOLS DOCUMENT...
import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [tools, ...documents] = process.argv.slice(2);
const found = createRequire(pathToFileURL(tools + "/package.json")).resolve("openapi-typescript");
const { default: openapiTS, astToString } = await import(pathToFileURL(found.replace(/index\.(c?js|mjs)$/, "index.mjs")));
for (const file of documents) {
  const types = await openapiTS(JSON.parse(fs.readFileSync(file, "utf8")));
  fs.writeFileSync(file.replace(/\.json$/, ".ts"), astToString(types));
}
