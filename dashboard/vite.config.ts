import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';
import { licences } from './licences.ts';

// Addresses in the files are relative, so that the server can put them below any path. Nothing is inlined: the policy of the page allows
// neither scripts in it nor data: addresses. While developing, pages are where they are later, and `j17 dev` answers below /api/.
export default defineConfig(({ command }) => ({
  base: command === 'serve' ? '/ui/' : './',
  plugins: [svelte(), licences()],
  build: { target: 'es2022', assetsInlineLimit: 0, cssCodeSplit: true, sourcemap: false, reportCompressedSize: false, modulePreload: { polyfill: false } },
  server: {
    proxy: { '/api': { target: process.env.J17_CONTROL ?? 'http://control.localhost:17000', changeOrigin: true } },
    fs: { allow: ['..'] },
  },
  test: { include: ['src/**/*.test.ts'] },
}));
