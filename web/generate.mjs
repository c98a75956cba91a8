// Generates the TypeScript of the gateway's API from proto/, if a proto has changed.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const protos = join(here, '../proto/holdfast/gateway/v1');
const stamp = join(here, 'src/api/gen/stamp');

const hash = createHash('sha256');
for (const name of [...readdirSync(protos).sort().map((file) => join(protos, file)), join(here, 'buf.gen.yaml')]) {
  hash.update(readFileSync(name));
}
const now = hash.digest('hex');
if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== now) {
  // The program itself: the package's wrapper needs an install script.
  const require = createRequire(import.meta.url);
  const buf = join(dirname(require.resolve(`@bufbuild/buf-linux-${process.arch === 'arm64' ? 'aarch64' : 'x64'}/package.json`)), 'bin/buf');
  const path = `${join(here, 'node_modules/.bin')}${delimiter}${dirname(process.execPath)}${delimiter}${process.env.PATH}`;
  execFileSync(buf, ['generate'], { cwd: here, stdio: 'inherit', env: { ...process.env, PATH: path } });
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, now);
}
