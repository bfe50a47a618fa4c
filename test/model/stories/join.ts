/**
 * A guest that joins a directory under another name, and packages that are installed in it first: these stay, the name goes back where
 * it can, and what it is left with is told.
 */
import { expect } from '@jest/globals';
import { joinDirectory } from '../../../agent/src/workflows/guest/directory.ts';
import type { Guest, Program } from '../../../agent/src/workflows/guest/guest.ts';
import { RunOfAgent } from '../run-of-agent.ts';
import type { BuildStory } from '../undo-model.ts';
import { silent } from '../world.ts';
import { isUndone, makeVm } from './vm.ts';

const REQUEST = {
  ...{
    directory: 'lab.test',
    login: 'admin',
    password: 'secret',
    unit: [],
  },
};
const NEEDED = ['adcli', 'realmd', 'sssd-ad', 'sssd-tools', 'libnss-sss', 'libpam-sss', 'polkitd'];

interface Own {
  name: string;
  /** The directory that it is in. */
  joined: string;
  starts: number;
}

/** A Debian with some of the packages. */
function scriptedGuest(installed: Set<string>, own: Own): Guest {
  const answer = ({ args }: Program): string => {
    const line = args.join(' ');
    if (line.includes('dpkg-query')) {
      const version = line.includes('Version') ? ' 1' : '';
      return [...installed].map(name => `${name}${version} installed\n`).join('');
    }
    if (line.includes('apt-cache')) return 'polkitd:\n  Installed: (none)\n  Candidate: 1\n';
    if (/ install (?!--download)/.test(line))
      for (const name of line.split(' install ')[1]!.split(' ')) installed.add(name);
    if (line.includes('set-hostname')) own.name = args.at(-1)!;
    if (line.includes('realm join')) own.joined = REQUEST.directory;
    if (line.includes('realm list')) return own.joined;
    if (line.includes('boot_id')) return `${own.starts}\n`;
    return line.includes('uname') ? `${own.name}\n` : `${REQUEST.directory}\n`;
  };
  return {
    name: 'vm',
    osInfo: async () => ({ id: 'debian' }),
    command: async name => {
      if (name === 'guest-shutdown') own.starts += 1;
      return {};
    },
    sshKeys: async () => [],
    run: async program => {
      await RunOfAgent.reach('guest-exec.before');
      const out = answer(program);
      await RunOfAgent.reach('guest-exec.after');
      return { exitCode: 0, out, err: '' };
    },
  };
}

export const join: BuildStory = async (world, random) => {
  const { machine } = await makeVm(world, { running: true, agent: true });
  const installed = new Set(NEEDED.filter(() => random(2) === 1));
  const before = installed.size;
  const files = world.files();
  const own = { name: 'web', joined: '', starts: 1 };
  const computerName = random(2) ? 'web2' : '';
  const restart = random(2) === 1;
  const operations = {
    libvirt: () => world.scripted.libvirt,
    log: silent,
    changed: () => {},
    openGuest: () => scriptedGuest(installed, own),
  };
  return {
    kind: 'join_directory',
    points: 30,
    workflow: () =>
      joinDirectory(operations as never, { ...REQUEST, computerName, restart, domainId: machine.uuid }),
    undone: effect => isUndone(world, effect),
    async safe() {},
    async settled(committed) {
      expect([machine.live !== null, world.files()]).toEqual([true, files]);
      if (!committed && installed.size > before) expect(world.warnings.join()).toMatch(/in the guest of vm/);
      if (!committed && own.name !== 'web') expect(world.warnings.join()).toMatch(/may have the name web2/);
      if (committed || own.joined) expect(own.name).toBe(computerName || 'web');
      if (!committed && own.joined) expect(world.warnings.join()).toMatch(/told to join .+ may stand/);
      if (committed) expect(world.warnings).toEqual([]);
    },
  };
};
