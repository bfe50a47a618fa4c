// A file system that stops answering, as a network one whose server is gone: a FUSE file whose server is held. The agent's main
// thread goes on (systemd's watchdog is fed there), and so does other file work; when it answers again, so does the copy.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { NODE_BIN, ROOT } from '../../lab/paths.ts';
import { run, waitFor } from '../../lab/run.ts';

let dir: string;
let server: ChildProcess;
let reader: ChildProcess | undefined;
let output = '';

const exported = () => join(dir, 'exported.img');

beforeEach(async () => {
  dir = mkdtempSync('/var/tmp/virtkeep-hung-');
  output = '';
  await run(['truncate', '-s', '8M', join(dir, 'backing.img')]);
  writeFileSync(exported(), '');
  server = spawn(
    'qemu-storage-daemon',
    [
      '--blockdev',
      `driver=file,node-name=f,filename=${join(dir, 'backing.img')}`,
      '--export',
      `type=fuse,id=e,node-name=f,mountpoint=${exported()},writable=off`,
    ],
    { stdio: 'ignore' },
  );
  await waitFor(
    'the FUSE file',
    async () => (await run(['stat', '-c', '%s', exported()])).stdout.trim() === String(8 << 20),
    60_000,
    20,
  );
});
afterEach(async () => {
  reader?.kill('SIGKILL');
  server.kill('SIGCONT');
  server.kill('SIGTERM');
  await waitFor(
    'the end of the server',
    () => server.exitCode !== null || server.signalCode !== null,
    60_000,
    20,
  );
  if (existsSync(dir)) rmSync(dir, { recursive: true, force: true });
});

const says = (text: string, times = 1) => output.split('\n').filter(line => line === text).length >= times;

test('holds up neither the main thread nor work on other files', async () => {
  const healthy = join(dir, 'backing.img');
  reader = spawn(NODE_BIN, [join(ROOT, 'test/integration/backup/hung-reader.ts'), exported(), healthy], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  reader.stdout!.on('data', (piece: Buffer) => (output += piece.toString()));
  await waitFor('the reader', () => says('opened hung'), 60_000, 20);
  server.kill('SIGSTOP');
  reader.stdin!.write('go\n');
  await waitFor('the event loop and other work', () => says('tick', 5) && says('healthy'), 60_000, 20);
  expect(says('copied hung')).toBe(false);
  server.kill('SIGCONT');
  await waitFor('the copy', () => says('copied hung'), 60_000, 20);
});
