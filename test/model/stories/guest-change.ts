/**
 * What is changed inside of a running guest and not taken back: it leaves its directory, or joins one as a Windows, gets another name, is
 * prepared for being copied. Whoever is told that this failed is told that it may stand.
 */
import { expect } from '@jest/globals';
import type { Workflow } from '../../../agent/src/workflows/context.ts';
import { joinDirectory, leaveDirectory } from '../../../agent/src/workflows/guest/directory.ts';
import type { GuestOperations } from '../../../agent/src/workflows/guest/domain.ts';
import type { Guest, Program } from '../../../agent/src/workflows/guest/guest.ts';
import { setHostname } from '../../../agent/src/workflows/guest/hostname.ts';
import { sysprep } from '../../../agent/src/workflows/guest/sysprep.ts';
import { RunOfAgent } from '../run-of-agent.ts';
import type { BuildStory } from '../undo-model.ts';
import { silent } from '../world.ts';
import { isUndone, makeVm } from './vm.ts';

const DIRECTORY = 'lab.test';
const LOGIN = { login: 'admin', password: 'secret', directory: DIRECTORY };
const PACKAGES = ['adcli', 'realmd', 'polkitd'];

/** What a guest is. */
interface Own {
  name: string;
  /** That it takes at its next start. */
  next: string;
  directory: string;
  isGeneralized: boolean;
  starts: number;
}

interface Change {
  kind: string;
  /** `ID` of its system. */
  id: 'debian' | 'mswindows';
  /** The directory that it is in before. */
  directory: string;
  workflow(operations: GuestOperations, request: { domainId: string; restart: boolean }): Workflow;
  isMade(own: Own): boolean;
}

const HOSTNAME = { hostname: 'new', allowNetworkLayers: false };
const naming: Omit<Change, 'id'> = {
  kind: 'set_hostname',
  directory: '',
  workflow: (operations, request) => setHostname(operations, { ...request, ...HOSTNAME }),
  isMade: ({ next }) => next === 'new',
};
const CHANGES: readonly Change[] = [
  { ...naming, id: 'debian' },
  { ...naming, id: 'mswindows' },
  {
    ...{ kind: 'leave_directory', id: 'debian', directory: DIRECTORY },
    workflow: (operations, request) => leaveDirectory(operations, { ...LOGIN, ...request }),
    isMade: ({ directory }) => directory === '',
  },
  {
    ...{ kind: 'join_directory', id: 'mswindows', directory: '' },
    workflow: (operations, request) =>
      joinDirectory(operations, { ...LOGIN, ...request, computerName: '', unit: [] }),
    isMade: ({ directory }) => directory === DIRECTORY,
  },
  {
    ...{ kind: 'sysprep', id: 'mswindows', directory: '' },
    workflow: (operations, { domainId }) =>
      sysprep(operations, {
        ...{ domainId, mode: 'oobe', action: 'reboot', generalize: true, vmMode: false, unattend: '' },
      }),
    isMade: ({ isGeneralized }) => isGeneralized,
  },
];

function answerOfLinux(own: Own, { args }: Program): string {
  const line = args.join(' ');
  if (line.includes('dpkg-query')) return PACKAGES.map(name => `${name} installed\n`).join('');
  if (line.includes('set-hostname')) own.name = own.next = args.at(-1)!;
  if (line.includes('realm leave')) own.directory = '';
  if (line.includes('realm list')) return own.directory;
  return line.includes('boot_id') ? `${own.starts}\n` : `${own.name}\n`;
}

function answerOfWindows(own: Own, { args }: Program): string {
  const script = Buffer.from(args.at(-1)!, 'base64').toString('utf16le');
  const has = (text: string) => script.includes(text);
  if (has('Add-Computer')) own.directory = DIRECTORY;
  if (has('Rename-Computer')) own.next = HOSTNAME.hostname;
  if (has('Start-Process')) own.isGeneralized = true;
  const { name, next, directory, starts } = own;
  return JSON.stringify({
    ...{ active: name, next, name, boot: String(starts) },
    ...{ joined: directory !== '', domain: directory || 'WORKGROUP' },
    ...{ code: 0, state: 'IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE' },
  });
}

function scriptedGuest({ id }: Change, own: Own): Guest {
  const answer = id === 'debian' ? answerOfLinux : answerOfWindows;
  return {
    name: 'vm',
    osInfo: async () => ({ id }),
    sshKeys: async () => [],
    command: async name => {
      await RunOfAgent.reach(`${name}.before`);
      if (name === 'guest-shutdown') Object.assign(own, { name: own.next, starts: own.starts + 1 });
      await RunOfAgent.reach(`${name}.after`);
      return {};
    },
    run: async program => {
      await RunOfAgent.reach('guest-exec.before');
      const out = answer(own, program);
      await RunOfAgent.reach('guest-exec.after');
      return { exitCode: 0, out, err: '' };
    },
  };
}

export const guestChange: BuildStory = async (world, random) => {
  const { machine } = await makeVm(world, { running: true, agent: true });
  const change = CHANGES[random(CHANGES.length)]!;
  const { kind, directory, workflow, isMade } = change;
  const own: Own = { name: 'old', next: 'old', directory, isGeneralized: false, starts: 1 };
  const operations = {
    libvirt: () => world.scripted.libvirt,
    log: silent,
    changed: () => {},
    openGuest: () => scriptedGuest(change, own),
  } as unknown as GuestOperations;
  const request = { domainId: machine.uuid, restart: random(2) === 1 };
  const files = world.files();
  return {
    kind,
    points: 12,
    workflow: () => workflow(operations, request),
    undone: effect => isUndone(world, effect),
    async safe() {},
    async settled(committed) {
      expect([machine.live !== null, world.files()]).toEqual([true, files]);
      if (committed) expect([isMade(own), world.warnings]).toEqual([true, []]);
      else if (isMade(own)) expect(world.warnings.join()).toMatch(/The guest of vm was told to .+ may stand/);
    },
  };
};
