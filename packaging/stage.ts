/** The files of an installation, laid out below a directory: what the .deb ships and `make install` copies. */
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PROGRAMS } from './bundle.ts';
import { PAGES } from './web.ts';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');

/** Where the product lives on an installed machine. */
const HOME = '/usr/lib/virtkeep';
const SOURCES = ['bundle', 'protos', 'shared', 'agent', 'controller'];
/** Build inputs of a native package that its built form does not need. */
const NOT_SHIPPED = /\/(deps|src|build\/Release\/(obj\.target|\.deps)|include|share|test|tests|docs?)$/;
/** For compilers and debuggers only. */
const NOT_RUN = /\.(map|d\.[cm]?ts|md)$/;
const SLIMMED = /^node_modules\/(zstd-napi|node-linux-[a-z0-9]+|better-sqlite3)$/;

interface LockEntry {
  dev?: boolean;
  link?: boolean;
}

/** Copies everything below `root`; settings that are there stay. The node modules must be installed and built, and the programs bundled. */
export function stage(root: string): void {
  const home = join(root, HOME);
  mkdirSync(home, { recursive: true });
  // its files have other names in each version
  rmSync(join(home, 'bundle'), { recursive: true, force: true });
  for (const source of SOURCES) copySource(source, home);
  cpSync(join(ROOT, 'package.json'), join(home, 'package.json'));
  // of the pages only what a browser loads; their files have other names in each version, too
  rmSync(join(home, 'controller', 'web'), { recursive: true, force: true });
  cpSync(PAGES, join(home, 'controller', 'web', 'dist'), { recursive: true });
  for (const path of productionModules()) {
    const slim = SLIMMED.test(path);
    cpSync(join(ROOT, path), join(home, path), {
      recursive: true,
      verbatimSymlinks: true,
      filter: file =>
        !(slim && NOT_SHIPPED.test(file)) && !NOT_RUN.test(file) && !file.endsWith('/node_modules'),
    });
  }
  for (const name of Object.keys(PROGRAMS)) putProgram(root, name);
  for (const unit of ['virtkeep-agent.service', 'virtkeep-controller.service']) {
    put(root, `/usr/lib/systemd/system/${unit}`, readFileSync(join(ROOT, 'packaging', 'systemd', unit)));
  }
  put(
    root,
    '/usr/lib/sysusers.d/virtkeep.conf',
    readFileSync(join(ROOT, 'packaging', 'systemd', 'virtkeep.sysusers')),
  );
  for (const name of ['agent', 'controller']) {
    const settings = `/etc/virtkeep/${name}.yaml`;
    if (existsSync(join(root, settings))) continue;
    put(root, settings, readFileSync(join(ROOT, 'packaging', `${name}.example.yaml`)));
  }
  for (const doc of ['README.md', 'LICENSE', 'docs']) {
    if (existsSync(join(ROOT, doc)))
      cpSync(join(ROOT, doc), join(root, '/usr/share/doc/virtkeep', doc), {
        recursive: true,
        // pictures are for who reads them in a browser
        filter: file => !file.endsWith('/docs/screenshots'),
      });
  }
}

function copySource(name: string, home: string): void {
  cpSync(join(ROOT, name), join(home, name), {
    recursive: true,
    filter: file => !/\/(node_modules|test|tsconfig[^/]*\.json|controller\/web)$|\.test\.ts$/.test(file),
  });
}

/** Paths of the installed packages that are needed at run time, by the lock file; workspaces are links. */
function productionModules(): string[] {
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, LockEntry>;
  };
  return Object.entries(lock.packages)
    .filter(([path, entry]) => path.includes('node_modules/') && !entry.dev && existsSync(join(ROOT, path)))
    .map(([path]) => path);
}

function privateNode(): string {
  const name = readdirSync(join(ROOT, 'node_modules')).find(entry => /^node-linux-/.test(entry));
  if (!name) throw new Error('the private Node is not installed; run make setup');
  return `${HOME}/node_modules/${name}/bin/node`;
}

function putProgram(root: string, name: string): void {
  put(
    root,
    `/usr/bin/${name}`,
    Buffer.from(`#!/bin/sh\nexec ${privateNode()} ${HOME}/bundle/${name}.mjs "$@"\n`),
    0o755,
  );
}

function put(root: string, path: string, content: Buffer, mode = 0o644): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
  chmodSync(join(root, path), mode);
}
