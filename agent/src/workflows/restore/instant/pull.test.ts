import { describe, expect, test } from '@jest/globals';
import { nextPullStep, type PullView } from './pull.ts';

type Disk = PullView['disks'][number];

const disk = (targetDev: string, change: Partial<Disk> = {}): Disk => ({
  targetDev,
  virtualSize: 100,
  allocatedSize: 10,
  liveOnArchive: false,
  isLiveTop: false,
  inUse: false,
  jobBytes: null,
  unfinished: false,
  ...change,
});
const running = { liveOnArchive: true, isLiveTop: true, inUse: true, unfinished: true };
const pulled = { isLiveTop: true, inUse: true };
const view = (domain: PullView['domain'], ...disks: Disk[]): PullView => ({
  domain,
  disks,
  chainDefined: true,
  elsewhere: null,
  unheard: null,
  unproven: null,
});

describe('the next step', () => {
  test.each<[string, PullView, object]>([
    ['QEMU pulls', view('running', disk('vda', running)), { do: 'pull', targetDev: 'vda' }],
    ['and is waited for', view('running', disk('vda', { ...running, jobBytes: 5 })), { do: 'wait' }],
    [
      'one disk after the other',
      view('running', disk('vda', pulled), disk('vdb', running)),
      { do: 'pull', targetDev: 'vdb' },
    ],
    [
      'the header is written a moment after the job',
      view('running', disk('vda', { ...pulled, unfinished: true })),
      { do: 'wait' },
    ],
    [
      'a layer that somebody put on it would keep what is pulled',
      view('running', disk('vda', { ...running, isLiveTop: false })),
      { do: 'blocked', reason: expect.stringContaining('vda') },
    ],
    [
      'a VM that is off: qemu-img pulls',
      view('off', disk('vda'), disk('vdb', { unfinished: true })),
      { do: 'pull_offline', targetDev: 'vdb' },
    ],
    ['then the definition forgets the chain', view('off', disk('vda')), { do: 'define' }],
    ['also while it runs', view('running', disk('vda', pulled)), { do: 'define' }],
    ['nothing refers to the archive', { ...view('off', disk('vda')), chainDefined: false }, { do: 'done' }],
    [
      'what is not proven to be independent keeps the chain',
      { ...view('off', disk('vda')), unproven: 'x.qcow2 is not there' },
      { do: 'blocked', reason: 'x.qcow2 is not there' },
    ],
    [
      'while the others are pulled in',
      { ...view('off', disk('vda'), disk('vdb', { unfinished: true })), unproven: 'x.qcow2 is not there' },
      { do: 'pull_offline', targetDev: 'vdb' },
    ],
    [
      'the VM is not here: qemu-img pulls',
      { ...view('gone', disk('vda', { unfinished: true })), chainDefined: false },
      { do: 'pull_offline', targetDev: 'vda' },
    ],
    [
      'unless another node has it',
      { ...view('gone', disk('vda', { unfinished: true })), chainDefined: false, elsewhere: 'n2 has it' },
      { do: 'blocked', reason: 'n2 has it' },
    ],
    [
      'unless a node that may have it is not heard, for a while',
      {
        ...{ ...view('gone', disk('vda')), chainDefined: false },
        ...{ elsewhere: 'it may be on n2', unheard: 'n2 is away' },
      },
      { do: 'give_up', reason: 'n2 is away' },
    ],
    ['the VM is gone with its disks', { ...view('gone', disk('vda')), chainDefined: false }, { do: 'done' }],
  ])('%s', (_name, seen, expected) => {
    expect(nextPullStep(seen)).toEqual(expected);
  });
});
