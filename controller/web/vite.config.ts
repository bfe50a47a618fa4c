import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

export default defineConfig({
  base: '/ui/',
  plugins: [react()],
  build: {
    // the policy of the pages allows no data: addresses
    assetsInlineLimit: 0,
    // it would be an inline script
    modulePreload: { polyfill: false },
    license: true,
    target: 'es2022',
  },
});
