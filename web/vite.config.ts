import { gzipSync } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/** Gateway that `npm run dev` sends calls to. */
const gateway = process.env['HOLDFAST_URL'] ?? 'http://127.0.0.1:18789';

const folder = (name: string) => new URL(`src/${name}`, import.meta.url).pathname;

/** Draws the pictures of Lucide by a component of ours. */
function ownIcons(): Plugin {
  return {
    name: 'own-icons',
    enforce: 'pre',
    resolveId: (source, importer) =>
      source === '../Icon.svelte' && importer?.includes('/@lucide/svelte/') ? folder('kit/Icon.svelte') : undefined,
  };
}

/** Fails the build if the first page has become too large. */
function sizeOfFirstPage(limitKilobytes: number, limitRequests: number): Plugin {
  return {
    name: 'size-of-first-page',
    apply: 'build',
    generateBundle(_options, bundle) {
      const entry = Object.values(bundle).find((chunk) => chunk.type === 'chunk' && chunk.isEntry);
      if (!entry || entry.type !== 'chunk') return;
      const styles = Object.keys(bundle).filter((name) => entry.viteMetadata?.importedCss.has(name));
      const files = [entry.fileName, ...entry.imports, ...styles];
      let bytes = 0;
      for (const name of files) {
        const file = bundle[name];
        if (file) bytes += gzipSync(file.type === 'chunk' ? file.code : file.source).length;
      }
      const size = `${(bytes / 1000).toFixed(0)} kB compressed in ${files.length} files`;
      if (bytes > limitKilobytes * 1000 || files.length > limitRequests) {
        this.error(`the first page is ${size}: at most ${limitKilobytes} kB in ${limitRequests}`);
      }
      this.info(`the first page is ${size}`);
    },
  };
}

/** Whether a module is a part of a page. Those of Chat, where people arrive, are in the common file when others show them, too. */
function isPartOfPage(module: string): boolean {
  const page = /\/src\/pages\/([^/]+)\//.exec(module)?.[1];
  return page !== undefined && page !== 'chat';
}

export default defineConfig({
  base: '/console/',
  plugins: [ownIcons(), svelte(), sizeOfFirstPage(170, 8)],
  resolve: { alias: { $lib: folder('lib'), $kit: folder('kit'), $api: folder('api') } },
  build: {
    target: 'es2022',
    // Nothing inline: the content security policy permits files of this origin only.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // What several pages use is one file: else each page would need dozens of small ones. Parts of one page that
    // others show, too, are apart, so that the first page does without them.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'common', minShareCount: 2, test: (module) => !isPartOfPage(module) }] } } },
  },
  server: {
    proxy: {
      '^/console/(api|ws|oidc|sign-in|sign-out)': { target: gateway, ws: true },
      '/docs': gateway,
    },
  },
});
