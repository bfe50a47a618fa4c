import { expect, test } from '@jest/globals';
import { DomainStateCode, ErrorCode, LibvirtError } from '@virtkeep/node-libvirt';
import type { OperationContext } from '../context.ts';
import type { GuestOperations } from './domain.ts';
import { sysprep } from './sysprep.ts';

const refused = (kind: 'libvirt' | 'connection', code: number) =>
  new LibvirtError({ kind, code, domain: 10, level: 2, message: 'no' }, 'virDomainGetState');
const GONE = refused('libvirt', ErrorCode.NO_DOMAIN);
const LOST = refused('connection', ErrorCode.INTERNAL_ERROR);

/** Prepares a Windows that is to shut down then. @param looks what libvirt says of its power from then on */
async function prepared(...looks: (number | LibvirtError)[]) {
  let isAsked = false;
  const said = async <T>(of: (state: number) => T): Promise<T> => {
    const look = isAsked ? looks.shift() : DomainStateCode.RUNNING;
    if (look instanceof LibvirtError) throw look;
    return of(look!);
  };
  const domain = {
    ...{ name: 'win', uuid: 'd' },
    isActive: () => said(state => state === DomainStateCode.RUNNING),
    state: () => said(state => ({ state, reason: 0 })),
    xml: async () => "<domain type='kvm'><name>win</name><uuid>d</uuid><os><type>hvm</type></os></domain>",
  };
  const state = 'IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE';
  const guest = {
    name: 'win',
    osInfo: async () => ({ id: 'mswindows' }),
    command: async (command: string) => {
      isAsked ||= command === 'guest-shutdown';
      return {};
    },
    run: async () => ({ exitCode: 0, out: JSON.stringify({ code: 0, state }), err: '' }),
  };
  const operations = {
    libvirt: () => ({ domainByUuid: async () => domain }),
    changed: () => {},
    openGuest: () => guest,
  } as unknown as GuestOperations;
  const told: unknown[] = [];
  const context = {
    signal: new AbortController().signal,
    effects: { begin: () => ({ undo: async () => {}, keep: () => {} }) },
    step: (_name: string, work: () => unknown) => work(),
    warn: (text: string) => void told.push(text),
    commit: (result: unknown) => void told.push(result),
  } as unknown as OperationContext;
  const request = { domainId: 'd', mode: 'oobe', action: 'shutdown', generalize: true } as const;
  await sysprep(operations, { ...request, vmMode: false, unattend: '' })(context);
  return { told, left: looks.length };
}

test.each([
  ['is off', [DomainStateCode.RUNNING, DomainStateCode.SHUTOFF]],
  ['is gone, as a transient one is', [DomainStateCode.RUNNING, GONE]],
  ['is off when libvirt is there again', [LOST, DomainStateCode.SHUTOFF]],
])('a guest is prepared that then %s', async (_how, looks) => {
  const done = { $case: 'sysprep', value: { action: 'shutdown' } };
  expect(await prepared(...looks)).toEqual({ told: [done], left: 0 });
});
