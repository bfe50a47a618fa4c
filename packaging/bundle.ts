/**
 * Brings each program together in a few files below `bundle/`: it starts in a third of the processor time that its 700 to
 * 1,500 modules take one by one. The sources run as well, by themselves; what is installed, and what the tests start, is
 * the bundle.
 * usage: bundle.ts
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { build, type Plugin } from 'esbuild';

const ROOT = join(import.meta.dirname, '..');
/** As deep below the root as it lies below the home of an installation: paths from it to other files hold in both. */
const OUT = join(ROOT, 'bundle');
const KEY = join(OUT, 'key');
const KEY_LETTERS = 16;
const SOURCES = ['shared', 'agent', 'controller'];
/** What is in /usr/bin, and the source of each. */
export const PROGRAMS = {
  virtkeep: 'controller/cli/src/main.ts',
  'virtkeep-agent': 'agent/src/main.ts',
  'virtkeep-controller': 'controller/src/main.ts',
};
/** Packages that stay where they are: native ones, and those that look for files beside their own. */
const APART = [
  '@fastify/swagger',
  '@fastify/swagger-ui',
  '@node-rs/argon2',
  'better-sqlite3',
  'koffi',
  'pino',
  'zstd-napi',
];
/** What modules of the CommonJS kind expect to find. */
const COMMONJS = `import { createRequire as __createRequire } from 'node:module';
const require = __createRequire(import.meta.url), __filename = import.meta.filename, __dirname = import.meta.dirname;`;

/** Builds the programs unless they are those of these sources already. */
export async function bundle(): Promise<void> {
  const files = sourceFiles();
  const key = keyOf(files);
  if (existsSync(KEY) && readFileSync(KEY, 'utf8') === key) return;
  // as deep, beside it: whoever runs the former one does not find half of it
  const made = `${OUT}.${process.pid}`;
  // a process that runs while another version takes the place of its files must not start threads of that: its own are not there any more
  const threads = `threads-${key.slice(0, KEY_LETTERS)}`;
  const workers = files.filter(file => file.endsWith('.worker.ts'));
  await build({
    absWorkingDir: ROOT,
    entryPoints: {
      ...PROGRAMS,
      ...Object.fromEntries(workers.map(file => [`${threads}/${basename(file, '.ts')}`, file])),
    },
    outdir: made,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node22',
    // kept names would be given to each function anew, whenever it is made: a tenth of the memory of a controller of a thousand nodes
    keepNames: false,
    // a process keeps the text of what it has loaded: without comments and indents 5 MiB less
    minifyWhitespace: true,
    lineLimit: 160,
    banner: { js: COMMONJS },
    external: APART,
    plugins: [ownPlace(threads)],
    logLevel: 'warning',
  });
  assertNames(made);
  writeFileSync(join(made, 'key'), key);
  rmSync(OUT, { recursive: true, force: true });
  renameSync(made, OUT);
}

/** Classes that a library asks for by their names (@peculiar/asn1-schema); where two in a bundle have the same, one of them is renamed. */
const ASKED_FOR = ['Sequence'];

function assertNames(directory: string): void {
  for (const file of globSync(join(directory, '*.mjs')))
    for (const name of ASKED_FOR) {
      const renamed = new RegExp(`\\b(_+${name}\\d*|${name}\\d+)(\\s*=\\s*class|\\s+extends)\\b`).exec(
        readFileSync(file, 'utf8'),
      );
      if (renamed) throw new Error(`the class ${name} is ${renamed[1]} in ${basename(file)}`);
    }
}

/**
 * `import.meta` of a module of ours means its source; a thread runs the bundle of its worker.
 * @param threads the directory of those
 */
const ownPlace = (threads: string): Plugin => ({
  name: 'own-place',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const source = readFileSync(path, 'utf8');
      const place = JSON.stringify(relative(OUT, path));
      const contents = source
        .replace(
          /new URL\('[^']*?(\w+\.worker)\.ts', import\.meta\.\w+(\([^)]*\))?\)/g,
          `__URL('./${threads}/$1.mjs')`,
        )
        .replace(
          /new URL\(`\.\/worker\/\$\{name\}\.worker\.\$\{suffix\}`, import\.meta\.url\)/g,
          `__URL(\`./${threads}/$\${name}.worker.mjs\`)`,
        )
        .replaceAll('import.meta.url', `new URL(${place}, import.meta.url).href`)
        .replaceAll(
          'import.meta.dirname',
          `new URL(${JSON.stringify(dirname(relative(OUT, path)))}, import.meta.url).pathname`,
        )
        .replaceAll(/__URL\(([^)]*)\)/g, 'new URL($1, import.meta.url)');
      if (/import\.meta(?!\.url\b)/.test(contents))
        throw new Error(`${path}: no bundle knows what else of import.meta is meant`);
      return { contents, loader: 'ts' };
    });
  },
});

/** Own modules that may be part of a program, and what says which packages there are; relative to the root. */
function sourceFiles(): string[] {
  const patterns = SOURCES.map(directory => `${directory}/**/*.{ts,json,proto,binpb}`);
  return globSync(patterns, {
    cwd: ROOT,
    exclude: name => /node_modules|\.test\.ts$|^(test|web)$/.test(name),
  }).sort();
}

function keyOf(files: readonly string[]): string {
  const hash = createHash('sha256');
  for (const file of [...files, 'package-lock.json', 'packaging/bundle.ts']) {
    hash.update(`${file}\0`).update(readFileSync(join(ROOT, file)));
  }
  return hash.digest('hex');
}

if (import.meta.main) await bundle();
