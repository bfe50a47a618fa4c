/** Installs below the given directory. usage: install.ts ROOT; settings files that exist there are kept. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { bundle } from './bundle.ts';
import { stage } from './stage.ts';
import { buildPages } from './web.ts';

const target = resolve(process.argv[2] ?? '/');
await bundle();
await buildPages();
stage(target);
if (target === '/' && existsSync('/run/systemd/system')) {
  execFileSync('systemd-sysusers', ['/usr/lib/sysusers.d/virtkeep.conf']);
  execFileSync('systemctl', ['daemon-reload']);
  // what runs has lost its files
  execFileSync('systemctl', ['try-restart', 'virtkeep-agent.service', 'virtkeep-controller.service']);
}
process.stdout.write(`install: files are below ${target}; enable virtkeep-agent or virtkeep-controller\n`);
