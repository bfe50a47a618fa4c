// Builds dist/ (JavaScript and declarations) and packs it as a tarball for npm: Node strips types from .ts files, but not
// below node_modules. Usage: node scripts/pack.js [directory of the tarball]

import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const root = resolve(import.meta.dirname, '..');
const dist = join(root, 'dist');
const target = resolve(process.argv[2] ?? root);

rmSync(dist, { recursive: true, force: true });
execFileSync('tsc', ['-p', join(root, 'tsconfig.build.json')], { stdio: 'inherit' });

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const { exports: _sources, scripts: _scripts, private: _private, ...published } = manifest;
const entry = { '.': { types: './index.d.ts', default: './index.js' } };
writeFileSync(join(dist, 'package.json'), `${JSON.stringify({ ...published, exports: entry }, null, 2)}\n`);
cpSync(join(root, 'README.md'), join(dist, 'README.md'));
cpSync(join(root, '../../LICENSE'), join(dist, 'LICENSE'));
execFileSync('npm', ['pack', dist, '--pack-destination', target], { stdio: 'inherit' });
