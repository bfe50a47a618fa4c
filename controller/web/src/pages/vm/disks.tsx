/** Disks of a VM: its own, and those that other VMs lend it to be read. */
import { Content, Title } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'react-router';
import { AT_ONCE, api, begun, type Domain, keyFor, list, newKey, type Vdisk } from '../../api/client.ts';
import { ActionButton } from '../../parts/actions.tsx';
import { Confirm, Dialog } from '../../parts/confirm.tsx';
import { type Choice, MOST_FOUND, Picker } from '../../parts/picker.tsx';
import { domainReason } from '../../parts/reasons.ts';
import { Shown } from '../../parts/shown.tsx';
import { useToasts } from '../../parts/toasts.tsx';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';

const MOST = 1000;

export function VmDisks({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const words = texts.vm;
  const own = useQuery({
    queryKey: ['domains', 'disks', domain.id],
    queryFn: () =>
      list<Vdisk>(
        api.GET('/api/vdisks/', { params: { query: { domain: domain.id, limit: MOST, all_content: 1 } } }),
      ),
  });
  return (
    <>
      <Title headingLevel="h2" className="vk-block">
        {words.ownDisks}
      </Title>
      <Shown query={own}>{({ results }) => <DiskTable disks={results} />}</Shown>
      <Lent domain={domain} />
    </>
  );
}

function DiskTable({ disks }: { disks: readonly Vdisk[] }) {
  const { texts, format } = useWords();
  const words = texts.vm;
  return (
    <Table aria-label={words.ownDisks} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th modifier="wrap">{words.device}</Th>
          <Th modifier="wrap">{texts.common.name}</Th>
          <Th modifier="wrap">{texts.common.size}</Th>
          <Th modifier="wrap">{texts.pools.used}</Th>
          <Th modifier="wrap">{texts.common.pool}</Th>
          <Th modifier="wrap">{words.snapshots}</Th>
        </Tr>
      </Thead>
      <Tbody>
        {disks.map(disk => (
          <Tr key={disk.id}>
            <Td dataLabel={words.device}>
              {disk.target_dev} <span className="vk-small">{disk.target_bus}</span>
            </Td>
            <Td dataLabel={texts.common.name} className="vk-name">
              {disk.verbose_name}
            </Td>
            <Td dataLabel={texts.common.size}>{format.size(disk.size)}</Td>
            <Td dataLabel={texts.pools.used}>{format.size(disk.used)}</Td>
            <Td dataLabel={texts.common.pool}>{disk.datapool?.verbose_name ?? texts.none}</Td>
            <Td dataLabel={words.snapshots}>{disk.snapshots?.length ?? 0}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function Lent({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const words = texts.vm;
  const asked = useAsked();
  const [isAttaching, setAttaching] = useState(false);
  const lent = useQuery({
    queryKey: ['domains', 'lent', domain.id],
    queryFn: () =>
      list<Vdisk>(api.GET('/api/vdisks/', { params: { query: { another_domain: domain.id, limit: MOST } } })),
  });
  return (
    <>
      <Title headingLevel="h2" className="vk-block">
        {words.lentDisks}
      </Title>
      <Content component="p">{words.lentText}</Content>
      <ActionButton
        action={{
          key: 'attach',
          label: words.attach,
          reason: domainReason('attach_vdisk', domain, asked),
          act: () => setAttaching(true),
        }}
      />
      {isAttaching && <Attach domain={domain} close={() => setAttaching(false)} />}
      <Shown query={lent}>
        {({ results }) =>
          results.length === 0 ? <p>{words.noneLent}</p> : <LentTable domain={domain} disks={results} />
        }
      </Shown>
    </>
  );
}

function LentTable({ domain, disks }: { domain: Domain; disks: readonly Vdisk[] }) {
  const { texts, format } = useWords();
  const words = texts.vm;
  const asked = useAsked();
  const { started } = useToasts();
  const [leaving, setLeaving] = useState<Vdisk | undefined>();
  const reason = domainReason('detach_vdisk', domain, asked);
  const detach = async ({ id: vdisk }: Vdisk) => {
    const { id } = domain;
    const body = { vdisk, idempotency_key: keyFor(`/api/domains/${id}/detach-vdisk/`, vdisk) };
    const params = { path: { id }, query: AT_ONCE };
    started(await begun(api.POST('/api/domains/{id}/detach-vdisk/', { params, body })));
  };
  return (
    <>
      <Table aria-label={words.lentDisks} variant="compact">
        <Thead>
          <Tr>
            <Th modifier="wrap">{texts.common.name}</Th>
            <Th modifier="wrap">{words.owner}</Th>
            <Th modifier="wrap">{texts.common.size}</Th>
            <Th screenReaderText={texts.list.actions} />
          </Tr>
        </Thead>
        <Tbody>
          {disks.map(disk => (
            <Tr key={disk.id}>
              <Td dataLabel={texts.common.name} className="vk-name">
                {disk.verbose_name}
              </Td>
              <Td dataLabel={words.owner} className="vk-name">
                <Link to={`/vms/${disk.domain.id}`}>{disk.domain.verbose_name}</Link>
              </Td>
              <Td dataLabel={texts.common.size}>{format.size(disk.size)}</Td>
              <Td isActionCell>
                <ActionButton
                  size="sm"
                  action={{ key: 'detach', label: words.detach, reason, act: () => setLeaving(disk) }}
                />
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {leaving && (
        <Confirm
          title={words.detachTitle(leaving.verbose_name)}
          text={words.detachText}
          submit={words.detach}
          act={() => detach(leaving)}
          close={() => setLeaving(undefined)}
        />
      )}
    </>
  );
}

function Attach({ domain, close }: { domain: Domain; close: () => void }) {
  const { texts, format } = useWords();
  const words = texts.vm;
  const { started } = useToasts();
  const [chosen, setChosen] = useState<Choice[]>([]);
  const [key] = useState(newKey);
  const [clone, setClone] = useState<Choice[]>([]);
  const vdisk = chosen[0]?.id;
  const attach = async () => {
    if (vdisk === undefined) return;
    const params = { path: { id: domain.id }, query: AT_ONCE };
    const thin_clone = clone[0]?.id;
    const body = { vdisk, ...(thin_clone === undefined ? {} : { thin_clone }), idempotency_key: key };
    started(await begun(api.POST('/api/domains/{id}/attach-vdisk/', { params, body })));
  };
  const find = async (name: string) => {
    const query = { limit: MOST_FOUND, ...(name === '' ? {} : { name }) };
    const { count, results } = await list<Vdisk>(api.GET('/api/vdisks/', { params: { query } }));
    const choices = results.map(disk => ({
      id: disk.id,
      name: disk.verbose_name,
      about: `${disk.domain.verbose_name}, ${format.size(disk.size)}`,
      reason: disk.domain.id === domain.id ? words.isOwn : undefined,
    }));
    return { count, results: choices };
  };
  const findClones = async (name: string) => {
    const query = { limit: MOST_FOUND, thin: 'true' as const, ...(name === '' ? {} : { name }) };
    const { count, results } = await list<Domain>(api.GET('/api/domains/', { params: { query } }));
    return { count, results: results.map(one => ({ id: one.id, name: one.verbose_name })) };
  };
  return (
    <Dialog
      title={words.attachTitle(domain.verbose_name)}
      submit={words.attach}
      isReady={vdisk !== undefined}
      size="medium"
      act={attach}
      close={close}
    >
      {fault => (
        <>
          <Picker
            id="attach-disk"
            label={words.disk}
            isRequired
            isSingle
            kind={['domains', 'disks']}
            chosen={chosen}
            change={setChosen}
            find={find}
            error={fault('vdisk')}
          />
          <Picker
            id="attach-clone"
            label={words.thinClone}
            help={words.thinCloneText}
            isSingle
            isQuiet
            kind={['domains', 'thin']}
            chosen={clone}
            change={setClone}
            find={findClones}
            error={fault('thin_clone')}
          />
        </>
      )}
    </Dialog>
  );
}
