import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// Addresses in the files are relative, so that the server can put them below any path. Nothing is inlined: the policy of the page allows
// neither scripts in it nor data: addresses.
export default defineConfig({
  base: './',
  plugins: [svelte()],
  build: { target: 'es2022', assetsInlineLimit: 0, cssCodeSplit: true, sourcemap: false, reportCompressedSize: false, modulePreload: { polyfill: false } },
  server: { proxy: { '/api': { target: 'http://control.localhost:8017', changeOrigin: true } } },
  test: { include: ['src/**/*.test.ts'] },
});
