/** `make check`: everything that can be known to be wrong without running the product. Runs all, then reports. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { preparePages } from '../../packaging/web.ts';
import { errorsPage } from './errors-doc.ts';
import { ROOT } from './paths.ts';
import { CommandFailed, run } from './run.ts';

const GENERATED = join('shared', 'src', 'gen');

const CHECKS: Record<string, () => Promise<unknown>> = {
  'format and lint (biome)': () => tool('biome', 'check', '.'),
  'types (tsc)': types,
  'types of the pages (tsc)': typesOfPages,
  'floating promises (eslint)': () => tool('eslint', '.'),
  'import directions (dependency-cruiser)': () =>
    tool('depcruise', '--config', '.dependency-cruiser.cjs', 'agent', 'controller', 'shared'),
  'protos (buf lint)': () => tool('buf', 'lint'),
  'generated code is up to date (buf generate)': generatedCode,
  'docs/errors.md is up to date': errorsDocument,
};

let failed = 0;
for (const [name, check] of Object.entries(CHECKS)) {
  try {
    await check();
    process.stdout.write(`ok      ${name}\n`);
  } catch (error) {
    failed += 1;
    process.stdout.write(`FAILED  ${name}\n${(error as Error).message}\n`);
  }
}
process.exitCode = failed === 0 ? 0 : 1;

/** Runs a tool of node_modules; its findings, which most tools print to stdout, become the error's text. */
async function tool(name: string, ...args: string[]): Promise<void> {
  try {
    await run([join(ROOT, 'node_modules', '.bin', name), ...args], { cwd: ROOT, timeoutMs: 600_000 });
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error;
    throw new Error([error.stdout, error.stderr].join('\n').trim().split('\n').slice(-60).join('\n'));
  }
}

/** Of the packages that npm installs tsc looks at no file again, so what was built before they changed goes. */
async function types(): Promise<void> {
  const built = join(ROOT, '.cache', 'tsc');
  const installed = join(ROOT, 'node_modules', '.package-lock.json');
  if (existsSync(built) && statSync(built).mtimeMs < statSync(installed).mtimeMs)
    rmSync(built, { recursive: true });
  await tool('tsc', '--build', 'tsconfig.packages.json');
}

/** They are a program of their own, with packages of their own. */
async function typesOfPages(): Promise<void> {
  await preparePages();
  await tool('tsc', '--project', join('controller', 'web'));
}

async function generatedCode(): Promise<void> {
  const work = mkdtempSync(join(tmpdir(), 'vk-gen-'));
  try {
    // buf.gen.yaml names its output below the directory given here
    await tool('buf', 'generate', '-o', work);
    const fresh = join(work, GENERATED);
    const differing = [...new Set([...listFiles(fresh), ...listFiles(join(ROOT, GENERATED))])].filter(
      path => contentOf(join(fresh, path)) !== contentOf(join(ROOT, GENERATED, path)),
    );
    const descriptor = join(work, 'descriptor.binpb');
    await tool('buf', 'build', '--exclude-source-info', '-o', descriptor);
    if (!readFileSync(descriptor).equals(readFileSync(join(ROOT, GENERATED, 'descriptor.binpb'))))
      differing.push('descriptor.binpb');
    if (differing.length > 0) throw new Error(`run make generate: ${differing.join(', ')}`);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function errorsDocument(): Promise<void> {
  if (contentOf(join(ROOT, 'docs', 'errors.md')) !== errorsPage()) throw new Error('run make generate');
}

function listFiles(dir: string): string[] {
  return readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter(path => path.endsWith('.ts'));
}

function contentOf(path: string): string | undefined {
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
}
