import { type Command, Option } from 'commander';
import { withClient } from '../context.ts';
import { ExitCode } from '../exit-codes.ts';
import { print, printJson, printTable } from '../output.ts';
import { resolve } from '../resolve.ts';
import { durationText } from '../table.ts';

interface Protection {
  domain: { id: string; verbose_name: string };
  node: { verbose_name: string };
  state: string;
  last_good: string | null;
  age: number | null;
  reason: string;
}

/** In the order in which they are listed. */
const STATES = ['late', 'never', 'failing', 'protected', 'excluded'];
const ALARMING = ['late', 'never', 'failing'];

/** `protection`: the state of every VM, most urgent first; exclude, include. */
export function addProtection(program: Command): void {
  const protection = program
    .command('protection')
    .description('list how well the VMs are protected, or exclude one');
  protection
    .command('list', { isDefault: true })
    .description(
      'list the VMs, the most urgent first; exit code 1 when one is late, failing or has no backup',
    )
    .addOption(new Option('--state <state>', 'only VMs in this state').choices(STATES))
    .action(async (_options, command: Command) => {
      const { state, json } = command.optsWithGlobals<{ state?: string; json?: boolean }>();
      const found = await withClient(client => client.all<Protection>('/api/protection/', { state }));
      const sorted = found.sort(mostUrgentFirst);
      if (json) printJson(sorted);
      else
        printTable(
          ['VM', 'STATE', 'AGE', 'LAST GOOD', 'NODE', 'REASON'],
          sorted.map(one => [
            one.domain.verbose_name,
            one.state,
            one.age === null ? '' : durationText(one.age),
            one.last_good ?? '',
            one.node.verbose_name,
            one.reason,
          ]),
        );
      if (sorted.some(one => ALARMING.includes(one.state))) process.exitCode = ExitCode.failed;
    });
  for (const [name, isExcluded] of [
    ['exclude', true],
    ['include', false],
  ] as const)
    protection
      .command(`${name} <vm>`)
      .description(isExcluded ? 'do without backups of a VM' : 'ask for backups of a VM again')
      .action(async (nameOrId: string, _options, command: Command) => {
        const domain = await withClient(async client => {
          const { id } = await resolve(client, 'domains', nameOrId);
          return client.put(`/api/domains/${id}/`, { protection_excluded: isExcluded });
        });
        if (command.optsWithGlobals<{ json?: boolean }>().json) return printJson(domain);
        print(`${domain.verbose_name}: ${(domain.protection as Protection).state}`);
      });
}

function mostUrgentFirst(a: Protection, b: Protection): number {
  const order = STATES.indexOf(a.state) - STATES.indexOf(b.state);
  return order || a.domain.verbose_name.localeCompare(b.domain.verbose_name, 'en');
}
