// A provider of the npm package `oidc-provider`. Arguments: the folder of the package, the port, the
// id of its key, and for https its address, certificate and private key. Whoever comes is signed in as
// `anna`, without a question.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { pathToFileURL } from "node:url";

// The test closes its end after the first line.
process.stdout.on("error", () => {});

const [folder, port, kid, address = "127.0.0.1", cert, key_file] = process.argv.slice(2);
const require = createRequire(`${folder}/node_modules/oidc-provider/package.json`);
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { Provider } = await load("oidc-provider");
const { generateKeyPair, exportJWK } = await load("jose");

const { privateKey } = await generateKeyPair("RS256", { extractable: true });
const key = { ...(await exportJWK(privateKey)), kid, use: "sig", alg: "RS256" };
const provider = new Provider(`${cert ? "https" : "http"}://${address}:${port}`, {
  jwks: { keys: [key] },
  cookies: { keys: ["of tests"] },
  clients: [
    {
      client_id: "holdfast",
      token_endpoint_auth_method: "none",
      application_type: "native",
      redirect_uris: ["http://127.0.0.1/callback"],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
    },
  ],
  claims: { openid: ["sub"], profile: ["name", "groups"] },
  conformIdTokenClaims: false,
  scopes: ["openid", "offline_access"],
  features: { devInteractions: { enabled: false }, revocation: { enabled: true } },
  interactions: { url: (_, interaction) => `/sign-in/${interaction.uid}` },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: "Anna of npm", groups: ["staff"] }),
  }),
});

const callback = provider.callback();
const answer = async (request, response) => {
  if (!request.url.startsWith("/sign-in/")) {
    return callback(request, response);
  }
  const { params, session, prompt } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    const result = { login: { accountId: "anna" } };
    return provider.interactionFinished(request, response, result);
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope("openid profile offline_access");
  const result = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, result);
};
const tls = cert && { cert: readFileSync(cert), key: readFileSync(key_file) };
const server = tls ? https.createServer(tls, answer) : http.createServer(answer);
server.listen(Number(port), address, () => console.log("ready"));
