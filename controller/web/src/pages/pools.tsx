import { Label, Progress, ProgressMeasureLocation, ProgressSize } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { AT_ONCE, answer, api, begun, keyFor, list, type Pool } from '../api/client.ts';
import { ActionMenu } from '../parts/actions.tsx';
import { Dialog } from '../parts/confirm.tsx';
import { CheckField, DescriptionField, NumberField } from '../parts/fields.tsx';
import { PoolForecast } from '../parts/forecast.tsx';
import { StatusLabel } from '../parts/labels.tsx';
import { Empty, ListBar, useList } from '../parts/list.tsx';
import { isWritten } from '../parts/number.ts';
import { changesOf, useOpened } from '../parts/opened.ts';
import { ViewPage } from '../parts/page.tsx';
import { rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { useToasts } from '../parts/toasts.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useWords } from '../texts/index.tsx';

const MiB = 1024 * 1024;

export default function PoolsPage() {
  const { texts } = useWords();
  const state = useList();
  const query = useQuery({
    queryKey: ['pools', state.query],
    queryFn: () => list<Pool>(api.GET('/api/data-pools/', { params: { query: state.query } })),
    placeholderData: keepPreviousData,
  });
  return (
    <ViewPage title={texts.pools.title}>
      <ListBar list={state} count={query.data?.count} />
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={texts.pools.empty} text={texts.pools.emptyText} />
          ) : (
            <PoolTable pools={results} />
          )
        }
      </Shown>
    </ViewPage>
  );
}

function PoolTable({ pools }: { pools: readonly Pool[] }) {
  const { texts, format } = useWords();
  const words = texts.pools;
  return (
    <Table aria-label={words.title} variant="compact">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.common.name}</Th>
          <Th modifier="wrap">{texts.common.status}</Th>
          <Th modifier="wrap">{words.type}</Th>
          <Th modifier="wrap">{words.used}</Th>
          <Th modifier="wrap">{words.files}</Th>
          <Th modifier="wrap">{words.disks}</Th>
          <Th modifier="wrap">{words.nodes}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {pools.map(pool => (
          <Tr key={pool.id}>
            <Td dataLabel={texts.common.name} className="vk-name">
              {pool.verbose_name}
              <div className="vk-small">{pool.path}</div>
            </Td>
            <Td dataLabel={texts.common.status}>
              <StatusLabel status={pool.status === 'FAILED' ? 'AWAY' : pool.status} />
            </Td>
            <Td dataLabel={words.type}>
              <span className="vk-row">
                {pool.type}
                {pool.readonly && <Label isCompact>{words.readonly}</Label>}
                {pool.outside && <Label isCompact>{words.outside}</Label>}
              </span>
            </Td>
            <Td dataLabel={words.used}>
              <Used pool={pool} />
            </Td>
            <Td dataLabel={words.files}>{format.number(pool.file_count)}</Td>
            <Td dataLabel={words.disks}>{format.number(pool.vdisk_count)}</Td>
            <Td dataLabel={words.nodes}>{pool.nodes_connected.map(node => node.verbose_name).join(', ')}</Td>
            <Td isActionCell>
              <PoolMenu pool={pool} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function Used({ pool }: { pool: Pool }) {
  const { texts, format } = useWords();
  if (pool.size === 0) return texts.none;
  return (
    <>
      <Progress
        aria-label={`${texts.pools.used}: ${pool.verbose_name}`}
        size={ProgressSize.sm}
        measureLocation={ProgressMeasureLocation.outside}
        title={texts.pools.usedOf(format.size(pool.used_space), format.size(pool.size))}
        value={Math.round((pool.used_space / pool.size) * 100)}
        className="vk-progress"
      />
      <PoolForecast forecast={pool.forecast} />
    </>
  );
}

function PoolMenu({ pool }: { pool: Pool }) {
  const { texts } = useWords();
  const asked = useAsked();
  const { attempt, started } = useToasts();
  const scan = async () =>
    started(
      await begun(
        api.POST('/api/data-pools/{id}/scan/', {
          params: { path: { id: pool.id }, query: AT_ONCE },
          body: { idempotency_key: keyFor(`/api/data-pools/${pool.id}/scan/`) },
        }),
      ),
    );
  const reason = pool.permissions?.includes('scan')
    ? undefined
    : (rightReason('pool.scan', asked) ?? texts.reasons.node);
  const [isEditing, setEditing] = useState(false);
  return (
    <>
      <ActionMenu
        of={pool.verbose_name}
        actions={[
          { key: 'scan', label: texts.pools.scan, reason, act: () => attempt(scan) },
          {
            key: 'edit',
            label: texts.pools.change,
            reason: rightReason('pool.manage', asked),
            act: () => setEditing(true),
          },
        ]}
      />
      {isEditing && <EditPool pool={pool} close={() => setEditing(false)} />}
    </>
  );
}

function EditPool({ pool: shown, close }: { pool: Pool; close: () => void }) {
  const pool = useOpened(shown);
  const { texts } = useWords();
  const words = texts.pools;
  const client = useQueryClient();
  const [description, setDescription] = useState(pool.description);
  const [backup_bandwidth, setBandwidth] = useState(pool.backup_bandwidth);
  const [latency_target, setLatency] = useState(pool.latency_target);
  const [isReadonly, setReadonly] = useState(pool.readonly);
  const [outside, setOutside] = useState(pool.outside);
  const act = async () => {
    const body = {
      ...changesOf<
        Pick<Pool, 'description' | 'readonly' | 'outside' | 'backup_bandwidth' | 'latency_target'>
      >(pool, {
        description,
        backup_bandwidth,
        latency_target,
        readonly: isReadonly,
        outside,
      }),
    };
    await answer(api.PUT('/api/data-pools/{id}/', { params: { path: { id: pool.id } }, body }));
    await client.invalidateQueries({ queryKey: ['pools'] });
  };
  return (
    <Dialog
      title={words.changeTitle(pool.verbose_name)}
      submit={texts.common.save}
      isReady={isWritten({ backup_bandwidth, latency_target })}
      act={act}
      close={close}
    >
      {fault => (
        <>
          <NumberField
            id="pool-bandwidth"
            label={words.bandwidth}
            help={texts.schedules.zeroNone}
            unit={MiB}
            value={backup_bandwidth}
            error={fault('backup_bandwidth')}
            change={setBandwidth}
          />
          <NumberField
            id="pool-latency"
            label={words.latency}
            help={words.latencyHelp}
            value={latency_target}
            error={fault('latency_target')}
            change={setLatency}
          />
          <CheckField
            id="pool-readonly"
            label={words.makeReadonly}
            error={fault('readonly')}
            isOn={isReadonly}
            change={setReadonly}
          />
          <CheckField
            id="pool-outside"
            label={words.makeOutside}
            error={fault('outside')}
            isOn={outside}
            change={setOutside}
          />
          <DescriptionField of="pool" value={description} fault={fault} change={setDescription} />
        </>
      )}
    </Dialog>
  );
}
