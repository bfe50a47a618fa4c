import { expect, test } from '@jest/globals';
import type { Domain } from '@virtkeep/node-libvirt';
import { FAMILIES } from './families.ts';
import { openGuest } from './guest.ts';
import { newlyInstalled } from './package-managers.ts';

const { signal } = new AbortController();

/** A domain whose guest answers any program with these texts, one after the other, cut as the program asks. */
function guestSaying(...texts: string[]): Domain {
  let bytes = Buffer.alloc(0);
  const answers: Record<string, (args: { arg?: string[] }) => unknown> = {
    'guest-exec': ({ arg }) => {
      // sh -c SCRIPT sh LIMIT …
      bytes = Buffer.from(texts.shift()!).subarray(0, Number(arg![3]));
      return { pid: 1 };
    },
    'guest-exec-status': () => ({ exited: true, exitcode: 0, 'out-data': bytes.toString('base64') }),
  };
  const agentCommand = async (request: string) => {
    const { execute, arguments: args } = JSON.parse(request) as { execute: string; arguments: object };
    return JSON.stringify({ return: answers[execute]?.(args) ?? {} });
  };
  return { uuid: '11111111-2222-4333-8444-555555555555', name: 'vm', agentCommand } as unknown as Domain;
}

const line = (name: string) => `${name} 4:1.2.3+dfsg-4ubuntu5.6~22.04.7 installed\n`;

test.each(FAMILIES.map(({ id, manager }) => [id, manager.listing] as const))(
  '%s: what was installed in a guest of 10,000 packages is told to the last',
  async (_id, listing) => {
    const many = Array.from({ length: 10_000 }, (_, index) => line(`libreoffice-l10n-${index}`)).join('');
    const guest = openGuest(guestSaying(many, `${many}${line('zz-adcli')}`), 'vm', signal);
    const [before, after] = [await guest.run(listing), await guest.run(listing)];
    expect(newlyInstalled(before, after)).toEqual(['zz-adcli']);
  },
);
