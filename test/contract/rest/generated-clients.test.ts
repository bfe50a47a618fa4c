/** Clients that generators make of the API document compile, and run the main job. */
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { type ClientWorld, clientWorld, type Job } from '../clients/honest-agent.ts';
import { nullsAsFlags } from '../clients/openapi-30.ts';
import { python } from '../clients/python.ts';
import { PASSWORD } from './app.ts';
import { stopAll } from './nodes-world.ts';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const GENERATOR = join(ROOT, 'node_modules/@openapitools/openapi-generator-cli/bin/openapi-generator.jar');
/** For a program that runs for seconds: nothing is optimised that will not run again, and nothing is left in /tmp. */
const JAVA_FLAGS = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-XX:-UsePerfData'];
const clientFile = (name: string) => fileURLToPath(new URL(`../clients/${name}`, import.meta.url));

let world: ClientWorld;
let job: Job;
let directory: string;
let document: string;

beforeAll(async () => {
  world = await clientWorld();
  // below the repository, where a client finds its packages
  mkdirSync(join(ROOT, '.cache'), { recursive: true });
  directory = mkdtempSync(join(ROOT, '.cache', 'generated-client-'));
  document = join(directory, 'openapi.json');
  writeFileSync(document, (await world.rest.call('GET', '/api/openapi.json')).text);
});
beforeEach(async () => {
  job = await world.job();
});
afterAll(async () => {
  rmSync(directory, { recursive: true });
  await stopAll(world.rest);
});

/** A program of node_modules, by the Node of this process. */
function program(path: string, ...parameters: string[]) {
  return run(process.execPath, [join(ROOT, 'node_modules', path), ...parameters], { cwd: directory });
}

function jobParameters(): string[] {
  return [world.url, 'the-administrator', PASSWORD, job.domain, job.datapool];
}

async function expectDone(told: string): Promise<void> {
  const made = JSON.parse(told) as { file: string; extended: string; restored: string };
  expect(made).toMatchObject({ extended: made.file, states: 2, refused: 'domain_not_found' });
  expect((await world.rest.call('GET', `/api/library/${made.file}/`)).body.states).toHaveLength(2);
  expect((await world.rest.call('GET', `/api/domains/${made.restored}/`)).status).toBe(200);
}

test('one with the types of openapi-typescript', async () => {
  await program('openapi-typescript/bin/cli.js', document, '--output', join(directory, 'api.d.ts'));
  copyFileSync(clientFile('generated-main-job.ts'), join(directory, 'main-job.ts'));
  const tsconfig = {
    extends: join(ROOT, 'tsconfig.base.json'),
    compilerOptions: { skipLibCheck: false, composite: false, emitDeclarationOnly: false, noEmit: true },
    include: ['main-job.ts', 'api.d.ts'],
    exclude: [],
  };
  writeFileSync(join(directory, 'tsconfig.json'), JSON.stringify(tsconfig));
  await program('typescript/bin/tsc', '-p', join(directory, 'tsconfig.json')).catch(({ stdout }) => {
    throw new Error(stdout);
  });
  const { stdout } = await run(process.execPath, [join(directory, 'main-job.ts'), ...jobParameters()]);
  await expectDone(stdout);
});

test('one in Python, by openapi-generator', async () => {
  const [older, made] = [join(directory, 'openapi-3.0.json'), join(directory, 'python')];
  await writeOlder(older);
  await generatePython(older, made);
  await python(['-m', 'compileall', '-q', made]);
  const { stdout } = await python([clientFile('generated_main_job.py'), ...jobParameters()], made);
  await expectDone(stdout);
});

/** The document as OpenAPI 3.0. */
async function writeOlder(to: string): Promise<void> {
  const flagged = join(directory, 'flagged.json');
  writeFileSync(flagged, JSON.stringify(nullsAsFlags(JSON.parse(readFileSync(document, 'utf8')))));
  await program('@apiture/openapi-down-convert/lib/src/cli.js', '--input', flagged, '--output', to);
}

/** The npm package brings the generator itself; it is an old one, but Debian 12 and 13 have all that its clients import. */
async function generatePython(from: string, to: string): Promise<void> {
  const what = ['--generator-name', 'python', '--package-name', 'virtkeep_client'];
  // neither pages nor stubs of tests
  const parts = 'apis,models,supportingFiles,apiDocs=false,modelDocs=false,apiTests=false,modelTests=false';
  const generate = ['generate', ...what, '--input-spec', from, '--output', to, '--global-property', parts];
  await run('java', [...JAVA_FLAGS, '-jar', GENERATOR, ...generate], { cwd: directory }).catch(error => {
    throw new Error(error.stdout + error.stderr);
  });
}
