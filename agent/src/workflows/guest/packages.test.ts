import { describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { OperationContext } from '../context.ts';
import type { Effect } from '../effect.ts';
import { FAMILIES } from './families.ts';
import type { Guest, Program, ProgramResult } from './guest.ts';
import { installPackages, stayingPackages } from './packages.ts';

const by = (id: string) => FAMILIES.find(family => family.id === id)!;
const answer = (out = '', exitCode = 0, err = ''): ProgramResult => ({ exitCode, out, err });
const line = ({ path, args }: Program) => [path, ...args].join(' ');

/** A guest whose package manager answers as `on` says; all else it does, and has its packages afterwards. */
class ScriptedGuest {
  readonly lines: string[] = [];
  readonly installed = new Set(['base', 'libc6']);
  readonly script: [RegExp, () => ProgramResult][] = [];

  on(pattern: RegExp, ...answers: (ProgramResult | Error)[]): this {
    this.script.unshift([
      pattern,
      () => {
        const next = answers.length > 1 ? answers.shift()! : answers[0]!;
        if (next instanceof Error) throw next;
        return next;
      },
    ]);
    return this;
  }

  guest(): Guest {
    return { name: 'vm', run: async (program: Program) => this.#run(program) } as unknown as Guest;
  }

  /** What its package manager was told, and nothing that only looks. */
  get told(): string[] {
    return this.lines
      .filter(text => /apt-get|dnf/.test(text))
      .map(text => text.replace(/^.*(?=apt-get|dnf)/s, ''));
  }

  #run(program: Program): ProgramResult {
    const text = line(program);
    this.lines.push(text);
    const scripted = this.script.find(([pattern]) => pattern.test(text));
    if (scripted) return scripted[1]();
    if (/ install (?!--download)/.test(text)) for (const name of namesIn(text)) this.installed.add(name);
    if (/dpkg-query|rpm/.test(text)) return this.#listing(text);
    return answer();
  }

  #listing(text: string): ProgramResult {
    if (/Version|VERSION/.test(text))
      return answer([...this.installed].map(name => `${name} 1 installed\n`).join(''));
    if (text.includes('dpkg-query'))
      return answer([...this.installed].map(name => `${name} installed\n`).join(''));
    const asked = text.split('-q ')[1]!.split(' ');
    const absent = asked.filter(name => !this.installed.has(name));
    return answer(absent.map(name => `package ${name} is not installed\n`).join(''), absent.length);
  }
}

const namesIn = (text: string) => text.split(' install ')[1]!.split(' ');

interface Seen {
  effects: Effect[];
  warnings: string[];
  steps: string[];
}

function contextOf(seen: Seen, signal = new AbortController().signal): OperationContext {
  return {
    signal,
    step: (name: string, work: () => Promise<unknown>) => {
      seen.steps.push(name);
      return work();
    },
    warn: (text: string) => seen.warnings.push(text),
    progress: { message: () => {} },
    effects: {
      begin: (effect: Effect) => {
        seen.effects.push(effect);
        return { keep: () => void seen.effects.splice(seen.effects.indexOf(effect), 1) };
      },
    },
  } as unknown as OperationContext;
}

/** Installs what is missing. @returns what is new, or the error's key and reason */
async function installing(
  guest: ScriptedGuest,
  {
    family = 'debian',
    missing = ['adcli', 'realmd'],
    install,
    signal,
    patienceMs = 60_000,
  }: Partial<Wish> = {},
) {
  const seen: Seen = { effects: [], warnings: [], steps: [] };
  const { manager } = by(family);
  const installation = { guest: guest.guest(), manager, missing, operation: 'joining', install };
  const patience = { totalMs: patienceMs, retryMs: 1 };
  const outcome = await installPackages(contextOf(seen, signal), installation, patience).catch(
    (error: VirtkeepError) => ({ key: error.msgKey, params: error.params }),
  );
  return { outcome, ...seen };
}

interface Wish {
  family: string;
  missing: string[];
  install: boolean;
  signal: AbortSignal;
  patienceMs: number;
}

const NO_NETWORK = answer('', 100, 'E: Failed to fetch http://deb.test/adcli.deb  Could not resolve');
const LOCKED = answer(
  '',
  100,
  'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (unattended-upgr)',
);
const MISSING = {
  key: 'guest_packages_missing',
  params: { domain: 'vm', operation: 'joining', missing: 'adcli, realmd' },
};

describe('missing packages', () => {
  test('are installed by the package manager of each family, and all that is new is told', async () => {
    for (const family of ['debian', 'redhat', 'alt', 'astra']) {
      const guest = new ScriptedGuest();
      const { outcome, warnings, steps } = await installing(guest, { family });
      expect([family, outcome]).toEqual([family, ['adcli', 'realmd']]);
      expect([warnings, steps]).toEqual([[], ['fetch packages', 'install packages']]);
      expect(guest.told.at(-1)).toMatch(/install adcli realmd$/);
      expect(guest.told.at(-2)).toMatch(/download-?only adcli realmd$/);
    }
  });

  test('are not asked about, and whatever asks the network is ended by the guest itself', async () => {
    const guest = new ScriptedGuest();
    await installing(guest);
    const runs = guest.lines.filter(text => text.includes('apt-get'));
    expect(runs).toHaveLength(3);
    for (const text of runs)
      expect(text).toMatch(/DEBIAN_FRONTEND=noninteractive .*apt-get -q -y .*Remove=false/);
    expect(runs.map(text => /timeout -k 15 \d+ /.test(text))).toEqual([true, true, false]);
  });

  test('of which one will do: the one that the sources have', async () => {
    const policy =
      'polkitd:\n  Installed: (none)\n  Candidate: (none)\npolicykit-1:\n  Installed: (none)\n  Candidate: 0.105\n';
    const guest = new ScriptedGuest().on(/apt-cache policy polkitd policykit-1/, answer(policy));
    const { outcome } = await installing(guest, { missing: ['polkitd|policykit-1'] });
    expect(outcome).toEqual(['policykit-1']);
    const newer = new ScriptedGuest().on(
      /apt-cache/,
      answer('polkitd:\n  Installed: (none)\n  Candidate: 122-3\n'),
    );
    expect((await installing(newer, { missing: ['polkitd|policykit-1'] })).outcome).toEqual(['polkitd']);
  });

  test('that are not to be installed are named, and nothing is run', async () => {
    const guest = new ScriptedGuest();
    expect((await installing(guest, { install: false })).outcome).toMatchObject(MISSING);
    expect(guest.lines).toEqual([]);
    expect((await installing(guest, { missing: [] })).outcome).toEqual([]);
  });

  test('that cannot be fetched are missing, and why is told; who asked for them has it as the error', async () => {
    const cases: [RegExp, ProgramResult, RegExp][] = [
      [/download-only/, NO_NETWORK, /Could not resolve/],
      [/download-only/, answer('', 124), /not fetched in time/],
      [/apt-get.* update/, answer('', 124), /sources did not answer/],
      [/download-only/, answer('', 127, "env: 'apt-get': No such file or directory"), /No such file/],
    ];
    for (const [pattern, result, reason] of cases) {
      const guest = new ScriptedGuest().on(pattern, result);
      const { outcome, warnings, effects } = await installing(guest);
      expect([outcome, effects]).toMatchObject([MISSING, []]);
      expect(warnings).toEqual([expect.stringMatching(reason)]);
      expect(guest.told.some(text => / install (?!--download)/.test(text))).toBe(false);
      expect((await installing(guest, { install: true })).outcome).toMatchObject({
        key: 'guest_install_failed',
        params: { missing: 'adcli, realmd', reason: expect.stringMatching(reason) },
      });
    }
  });

  test('are fetched although one of several sources fails', async () => {
    const guest = new ScriptedGuest().on(/apt-get.* update/, answer('', 100, 'E: The repository is gone'));
    expect((await installing(guest)).outcome).toEqual(['adcli', 'realmd']);
  });
});

describe('another package manager at work in the guest', () => {
  test('is waited for', async () => {
    const guest = new ScriptedGuest().on(/apt-get.* update/, LOCKED, LOCKED, answer());
    expect((await installing(guest)).outcome).toEqual(['adcli', 'realmd']);
    const yum = answer('', 200, 'Failed to obtain the transaction lock (logged in as: root).');
    const other = new ScriptedGuest().on(/--downloadonly/, yum, answer());
    expect((await installing(other, { family: 'redhat' })).outcome).toEqual(['adcli', 'realmd']);
  });

  test('is not waited for beyond measure, and the packages do not count as missing', async () => {
    const guest = new ScriptedGuest().on(/apt-get.* update/, LOCKED);
    expect((await installing(guest, { patienceMs: 0 })).outcome).toMatchObject({
      key: 'guest_install_failed',
      params: { reason: expect.stringContaining('unattended-upgr') },
    });
  });

  test('is not what an agent without the right to install meets', async () => {
    const denied =
      'E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\nE: Unable to acquire the dpkg frontend lock, are you root?';
    const guest = new ScriptedGuest().on(/download-only/, answer('', 100, denied));
    expect((await installing(guest)).outcome).toMatchObject(MISSING);
  });
});

describe('what was installed stays, and is declared', () => {
  test('by name once it is known', async () => {
    const { effects } = await installing(new ScriptedGuest());
    expect(effects).toEqual([
      { type: 'guest_packages', domain: 'vm', packages: ['adcli', 'realmd'], installed: true },
    ]);
    expect(stayingPackages(effects[0] as never)).toBe(
      'What was installed in the guest of vm stays: adcli, realmd.',
    );
  });

  test('when only a part succeeded', async () => {
    const guest = new ScriptedGuest();
    guest.on(
      / install adcli realmd$/,
      answer('', 100, 'E: Sub-process /usr/bin/dpkg returned an error code (1)'),
    );
    const lists = ['base 1 installed\n', 'base 1 installed\nlibx 2 installed\nadcli 1 half-configured\n'];
    guest.on(/Version/, ...lists.map(text => answer(text)));
    const { outcome, effects } = await installing(guest);
    expect(outcome).toMatchObject({
      key: 'guest_install_failed',
      params: { reason: expect.stringContaining('dpkg') },
    });
    expect(effects).toMatchObject([{ packages: ['libx'], installed: true }]);
  });

  test('and what was asked for, when nobody saw the end', async () => {
    const gone = new VirtkeepError('guest_agent_silent', { domain: 'vm' });
    const { outcome, effects } = await installing(new ScriptedGuest().on(/ install adcli/, gone));
    expect(outcome).toMatchObject({ key: 'guest_agent_silent' });
    expect(effects).toEqual([
      { type: 'guest_packages', domain: 'vm', packages: ['adcli', 'realmd'], installed: false },
    ]);
    expect(stayingPackages(effects[0] as never)).toMatch(/was installing adcli, realmd\. It goes on/);
  });

  test('and nothing, when nothing was', async () => {
    const broken = answer('', 100, 'E: dpkg was interrupted, you must manually run dpkg --configure -a');
    const { outcome, effects } = await installing(new ScriptedGuest().on(/ install adcli/, broken));
    expect([outcome, effects]).toMatchObject([{ key: 'guest_install_failed' }, []]);
  });

  test('a cancel ends the waiting for another package manager', async () => {
    const canceler = new AbortController();
    const guest = new ScriptedGuest().on(/apt-get.* update/, LOCKED);
    canceler.abort(new VirtkeepError('canceled'));
    const { outcome, effects } = await installing(guest, { signal: canceler.signal });
    expect([outcome, effects]).toMatchObject([{ key: 'canceled' }, []]);
  });
});
