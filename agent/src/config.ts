import { availableParallelism, hostname } from 'node:os';
import { join } from 'node:path';
import { cleanPath } from '@virtkeep/shared/clean-path';
import { loadConfig } from '@virtkeep/shared/config';
import { isUuid } from '@virtkeep/shared/ids';
import { z } from 'zod';

const absolutePath = z.string().regex(/^\//, 'must be an absolute path').transform(cleanPath);
const port = z.int().min(1).max(65535);

/** A section; one whose keys are all commented out is null in YAML. */
const section = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.preprocess(value => value ?? {}, z.strictObject(shape));

/** Every key is explained in packaging/agent.example.yaml; a test holds the two together. */
const agentConfigSchema = section({
  node_id: z.string().refine(isUuid, 'must be a lower-case UUID').optional(),
  state_dir: absolutePath.default('/var/lib/virtkeep-agent'),
  listen: section({ address: z.string().min(1).default('::'), port: port.or(z.literal(0)).default(8444) }),
  advertise: section({ address: z.string().min(1).default(hostname()), port: port.optional() }),
  tls: section({ dir: absolutePath.optional() }),
  libvirt: section({
    uri: z.string().min(1).default('qemu:///system'),
    keepalive_interval_seconds: z.int().min(1).max(300).default(5),
    keepalive_count: z.int().min(1).max(20).default(3),
    nvram_dir: absolutePath.default('/var/lib/libvirt/qemu/nvram'),
    swtpm_dir: absolutePath.default('/var/lib/libvirt/swtpm'),
  }),
  base_data_pool: z.string().min(1).optional(),
  limits: section({
    concurrent_operations: z.int().min(1).max(64).default(8),
    compression_workers: z.int().min(1).max(256).default(Math.min(availableParallelism(), 8)),
    upload_expiry_hours: z.number().positive().max(8_760).default(24),
    merge_bandwidth_mib: z.int().min(0).max(1_000_000).default(0),
  }),
  pools: section({ ownership: z.enum(['refuse', 'warn']).default('warn') }),
  guest: section({
    freeze_limit_seconds: z.int().min(1).max(86_400).default(300),
    file_idle_seconds: z.int().min(10).max(86_400).default(600),
    info_refresh_seconds: z.int().min(5).max(86_400).default(300),
    tools_image: absolutePath.optional(),
  }),
  hooks: section({
    backup: section({
      command: z.tuple([absolutePath], z.string()).optional(),
      timeout_seconds: z.int().min(1).max(86_400).default(300),
    }),
  }),
  import: section({ trusted_ca_file: absolutePath.optional() }),
  guestfs: section({ force_tcg: z.boolean().default(false) }),
  operation_retention_days: z.int().min(1).max(3650).default(7),
  shutdown: section({
    drain_timeout_seconds: z.int().min(0).max(86_400).default(30),
    undo_timeout_seconds: z.int().min(1).max(86_400).default(45),
  }),
  log: section({ level: z.enum(['error', 'warn', 'info', 'debug']).default('info') }),
});

export type AgentConfig = Omit<z.infer<typeof agentConfigSchema>, 'tls'> & { tls: { dir: string } };

/** Where the journal of an agent with these settings lies. */
export const journalPath = ({ state_dir }: AgentConfig): string => join(state_dir, 'journal.db');

/** @throws ConfigError naming the file, the key and what is wrong with it. */
export function loadAgentConfig(path: string): AgentConfig {
  const settings = loadConfig(path, agentConfigSchema);
  return { ...settings, tls: { dir: settings.tls.dir ?? join(settings.state_dir, 'tls') } };
}
