/**
 * Builds the management pages into `controller/web/dist`, which the controller serves. Their packages are their own, installed when
 * their lock file has changed; nothing is built when nothing that it is built of has changed.
 * usage: web.ts [modules]
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { apiDocument } from './api-document.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '..');
const WEB = join(ROOT, 'controller', 'web');
/** What a browser loads. */
export const PAGES = join(WEB, 'dist');
const TYPES = join(WEB, 'src', 'api', 'schema.d.ts');
const MODULES_KEY = join(WEB, 'node_modules', '.virtkeep-stamp');
const TYPES_KEY = join(WEB, 'node_modules', '.virtkeep-types');
const PAGES_KEY = join(PAGES, 'key');
/** What has no smaller form. */
const PACKED_ALREADY = /\.(woff2|png|jpg|gz|br)$|\/key$/;

/** Installs their packages, and makes the types of the API document, unless they are those of these sources already. */
export async function preparePages(): Promise<void> {
  await once(MODULES_KEY, ['controller/web/package.json', 'controller/web/package-lock.json'], async () => {
    const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
    await tell('npm', ['ci', ...flags], WEB);
  });
  if (!existsSync(TYPES)) rmSync(TYPES_KEY, { force: true });
  const makers = ['package-lock.json', 'packaging/api-document.ts', 'packaging/web.ts'];
  await once(TYPES_KEY, [...sources('controller/src'), ...sources('shared/src'), ...makers], async () => {
    const document = join(WEB, 'node_modules', '.virtkeep-document.json');
    writeFileSync(document, await apiDocument());
    await tell(join(ROOT, 'node_modules', '.bin', 'openapi-typescript'), [document, '-o', TYPES], ROOT);
  });
}

/** Builds them unless they are those of these sources already. */
export async function buildPages(): Promise<void> {
  await preparePages();
  const own = globSync('controller/web/{*,src/**/*,public/**/*}', { cwd: ROOT, exclude: ['**/node_modules'] })
    .filter(path => /\.\w+$/.test(path))
    .sort();
  await once(PAGES_KEY, [...own, 'packaging/web.ts'], async () => {
    rmSync(PAGES, { recursive: true, force: true });
    await tell(join(WEB, 'node_modules', '.bin', 'vite'), ['build', '--logLevel', 'warn'], WEB);
    await pack();
  });
}

function sources(directory: string): string[] {
  return globSync(`${directory}/**/*.ts`, { cwd: ROOT }).sort();
}

/** Does it unless it was done for files of these contents. */
async function once(stamp: string, files: readonly string[], work: () => Promise<void>): Promise<void> {
  const hash = createHash('sha256');
  for (const file of files) hash.update(`${file}\0`).update(readFileSync(join(ROOT, file)));
  const key = hash.digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === key) return;
  rmSync(stamp, { force: true });
  await work();
  writeFileSync(stamp, key);
}

/** Each file beside itself as it is sent to browsers that unpack it. */
async function pack(): Promise<void> {
  for (const path of globSync('**/*.*', { cwd: PAGES })) {
    const file = join(PAGES, path);
    if (PACKED_ALREADY.test(file)) continue;
    const bytes = readFileSync(file);
    const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
    writeFileSync(`${file}.br`, await promisify(brotliCompress)(bytes, quality));
    writeFileSync(`${file}.gz`, await promisify(gzip)(bytes, { level: 9 }));
  }
}

/** @throws with what the program said. */
async function tell(program: string, args: readonly string[], cwd: string): Promise<void> {
  try {
    await run(program, args, { cwd, maxBuffer: 16 * 1024 * 1024 });
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw new Error(`${program} ${args.join(' ')} failed:\n${stdout}${stderr}`, { cause: error });
  }
}

if (import.meta.main) await (process.argv[2] === 'modules' ? preparePages() : buildPages());
