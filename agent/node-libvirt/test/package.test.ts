import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from '@jest/globals';

const run = promisify(execFile);
const env = { ...process.env, NODE_OPTIONS: '' };
const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
let dir: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'node-libvirt-'));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const CONSUMER = `
import { connect } from '@virtkeep/node-libvirt';
const libvirt = await connect('test:///default');
const lost = await libvirt.domainByName('none').catch(error => error.code);
const event = libvirt.waitFor('lifecycle', e => e.event === 'suspended', { timeoutMs: 240_000 });
const [domain] = await libvirt.domains();
await domain.suspend();
console.log(domain.name, lost, (await event)[0].name);
await libvirt.close();
`;

test('the packed package works below node_modules', async () => {
  await run(process.execPath, [join(PACKAGE, 'scripts/pack.js'), dir], { env });
  const target = join(dir, 'node_modules/@virtkeep/node-libvirt');
  await mkdir(target, { recursive: true });
  const tarball = join(dir, 'virtkeep-node-libvirt-0.1.0.tgz');
  await run('tar', ['-xf', tarball, '-C', target, '--strip-components=1']);
  const koffi = fileURLToPath(new URL('.', import.meta.resolve('koffi')));
  await symlink(koffi, join(dir, 'node_modules/koffi'));
  await writeFile(join(dir, 'consumer.mjs'), CONSUMER);
  const { stdout } = await run(process.execPath, [join(dir, 'consumer.mjs')], { env });
  expect(stdout.trim()).toBe('test 42 test');
});
