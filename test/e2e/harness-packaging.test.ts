// What an installation consists of: the units are valid and locked down, the settings files are accepted.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { ROOT } from '../lab/paths.ts';
import { run } from '../lab/run.ts';

const UNITS = ['virtkeep-agent.service', 'virtkeep-controller.service'];

describe('an installation', () => {
  let root: string;

  beforeAll(async () => {
    root = mkdtempSync('/var/tmp/virtkeep-install-');
    await run([process.execPath, join(ROOT, 'packaging', 'install.ts'), root]);
    // what every machine with systemd has and a unit leans on
    for (const unit of ['sysinit', 'basic', 'shutdown', 'network-online', 'time-sync', 'multi-user']) {
      writeFileSync(join(root, 'usr/lib/systemd/system', `${unit}.target`), '[Unit]\n');
    }
  });

  afterAll(() => rmSync(root, { recursive: true, force: true }));

  test.each(UNITS)('systemd finds nothing wrong with %s', async unit => {
    // verify ends with 0 on unknown keys: what it says counts. Units of this machine are not ours.
    const { stdout, stderr } = await run([
      'systemd-analyze',
      'verify',
      `--root=${root}`,
      `/usr/lib/systemd/system/${unit}`,
    ]).catch(error => error as { stdout: string; stderr: string });
    expect(`${stdout}${stderr}`.split('\n').filter(line => line.includes('virtkeep'))).toEqual([]);
  });

  test.each([
    ['virtkeep-agent.service', 30],
    ['virtkeep-controller.service', 15],
  ])('%s is exposed by at most %i/100', async (unit, threshold) => {
    const path = join(root, 'usr/lib/systemd/system', unit);
    await run(['systemd-analyze', 'security', '--offline=yes', `--threshold=${threshold}`, path]);
  });

  test.each(['virtkeep', 'virtkeep-agent', 'virtkeep-controller'])('%s starts on the private Node', name => {
    const script = readFileSync(join(root, 'usr/bin', name), 'utf8');
    const [, node, main] = script.match(/exec (\S+) (\S+)/)!;
    expect(existsSync(join(root, node!))).toBe(true);
    const help = execFileSync(join(root, node!), [join(root, main!), '--help'], { encoding: 'utf8' });
    expect(help).toContain(name);
    // a daemon is started anew with flags of Node, as a command is not
    if (name === 'virtkeep') return;
    const args = [join(root, main!), '--config', '/nonexistent.yaml'];
    const { stderr, status } = spawnSync(join(root, node!), args, { encoding: 'utf8' });
    expect([status, stderr]).toEqual([78, expect.stringContaining('/nonexistent.yaml')]);
  });

  test('the shipped settings are accepted as they are', async () => {
    const { loadControllerConfig } = await import('../../controller/src/config.ts');
    expect(loadControllerConfig(join(root, 'etc/virtkeep/controller.yaml')).listen.port).toBe(8443);
  });
});
