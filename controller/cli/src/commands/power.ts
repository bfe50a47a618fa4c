import type { Command } from 'commander';
import { type GlobalOptions, withClient } from '../context.ts';
import { follow, type Started } from '../follow.ts';
import { note, printJson } from '../output.ts';
import { resolve } from '../resolve.ts';

const ACTIONS = ['start', 'shutdown', 'reboot', 'suspend', 'resume', 'reset'] as const;

/** `vms start|shutdown|reboot|suspend|resume|reset <vm>`. */
export function addPower(program: Command): void {
  const vms = program.commands.find(command => command.name() === 'vms');
  for (const action of ACTIONS) {
    const command = vms!.command(`${action} <vm>`).description(`${action} a VM`);
    if (action === 'shutdown' || action === 'reboot') command.option('--force', 'pull the plug');
    command.action(async (nameOrId: string, options: { force?: boolean }, self: Command) => {
      const { json } = self.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const domain = await resolve(client, 'domains', nameOrId);
        const started = await client.post<Started>(
          `/api/domains/${domain.id}/${action}/`,
          options.force ? { force: true } : {},
          { async: 1 },
        );
        const task = await follow(client, started._task.id, json);
        if (json) printJson(task);
        else note(`${domain.verbose_name}: ${action} done`);
      });
    });
  }
}
