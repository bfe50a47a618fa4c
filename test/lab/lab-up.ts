/** `make lab-up`: brings up a lab, or what of it is missing, and says how to reach it. */
import { relative } from 'node:path';
import { labOptions, labUp } from './lab.ts';

const say = (text: string) => process.stdout.write(`lab: ${text}\n`);
try {
  const options = labOptions(process.env, say);
  const { env, nodes, agents } = await labUp(options);
  const envFile = relative(process.cwd(), `${options.dir}/env`);
  say(`up
  pages    ${env.VIRTKEEP_URL}/ui/  (user ${env.VIRTKEEP_USER}, password ${env.VIRTKEEP_PASSWORD})
  REST     ${env.VIRTKEEP_URL}  (docs at /api/docs/)
  CA       ${env.VIRTKEEP_CA}
${nodes.map((node, index) => `  ${node.name}    ${agents[index]!.nodeId}  virsh -c '${node.uri}' list --all`).join('\n')}
  guest    ${env.VIRTKEEP_VM}
  logs     ${relative(process.cwd(), options.dir)}/controller/controller.log, ${relative(process.cwd(), agents[0]!.dir)}/agent.log
  try      source ${envFile}; node controller/cli/src/main.ts vms
  end      make lab-down`);
  process.exit(0);
} catch (error) {
  process.stderr.write(`lab: ${(error as Error).message}\nlab: make lab-down removes what is there\n`);
  process.exit(1);
}
