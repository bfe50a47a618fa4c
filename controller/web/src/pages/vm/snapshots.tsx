import { Checkbox, FormGroup, Label, TextInput } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { AT_ONCE, api, begun, type Domain, keyFor, list, type Snapshot } from '../../api/client.ts';
import { ActionButton, ActionMenu } from '../../parts/actions.tsx';
import { Confirm, Dialog } from '../../parts/confirm.tsx';
import { Empty } from '../../parts/list.tsx';
import { domainReason } from '../../parts/reasons.ts';
import { Shown } from '../../parts/shown.tsx';
import { useToasts } from '../../parts/toasts.tsx';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';

const MOST = 1000;
const RUNNING = 3;

export function VmSnapshots({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const words = texts.vm;
  const asked = useAsked();
  const [isMaking, setMaking] = useState(false);
  const query = useQuery({
    // what changes them changes the VM
    queryKey: ['domains', 'snapshots', domain.id],
    queryFn: () =>
      list<Snapshot>(
        api.GET('/api/domains/{id}/snapshots/', {
          params: { path: { id: domain.id }, query: { limit: MOST } },
        }),
      ),
  });
  return (
    <>
      <div className="vk-block">
        <ActionButton
          action={{
            key: 'make',
            label: words.makeSnapshot,
            reason: domainReason('snapshot', domain, asked),
            act: () => setMaking(true),
          }}
        />
      </div>
      {isMaking && <MakeSnapshot domain={domain} close={() => setMaking(false)} />}
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty title={words.noSnapshots} text={words.noSnapshotsText} />
          ) : (
            <SnapshotTable domain={domain} snapshots={results} />
          )
        }
      </Shown>
    </>
  );
}

function MakeSnapshot({ domain, close }: { domain: Domain; close: () => void }) {
  const { texts } = useWords();
  const words = texts.vm;
  const { started } = useToasts();
  const [name, setName] = useState('');
  const [memory, setMemory] = useState(false);
  const make = async () =>
    started(
      await begun(
        api.POST('/api/domains/{id}/snapshots/', {
          params: { path: { id: domain.id }, query: AT_ONCE },
          body: {
            verbose_name: name,
            memory,
            idempotency_key: keyFor(`/api/domains/${domain.id}/snapshots/`, `${memory} ${name}`),
          },
        }),
      ),
    );
  return (
    <Dialog
      title={words.makeSnapshot}
      submit={words.makeSnapshot}
      isReady={name !== ''}
      act={make}
      close={close}
    >
      <FormGroup label={words.snapshotName} isRequired fieldId="snapshot-name">
        <TextInput
          id="snapshot-name"
          value={name}
          maxLength={247}
          onChange={(_event, value) => setName(value)}
        />
      </FormGroup>
      {domain.user_power_state === RUNNING && (
        <Checkbox
          id="snapshot-memory"
          label={words.snapshotMemory}
          isChecked={memory}
          onChange={(_event, on) => setMemory(on)}
        />
      )}
    </Dialog>
  );
}

type Asks = { snapshot: Snapshot; action: 'revert' | 'remove' };

function SnapshotTable({ domain, snapshots }: { domain: Domain; snapshots: readonly Snapshot[] }) {
  const { texts, format } = useWords();
  const words = texts.vm;
  const asked = useAsked();
  const { started } = useToasts();
  const [asks, setAsks] = useState<Asks | undefined>();
  const reason = (snapshot: Snapshot, action: string) =>
    snapshot.permissions?.includes(action)
      ? undefined
      : (domainReason('snapshot', domain, asked) ?? texts.reasons.state);
  const run = async ({ snapshot, action }: Asks) => {
    const path = { id: domain.id, snapshot: snapshot.id };
    const key = keyFor(`/api/domains/${path.id}/snapshots/${path.snapshot}/${action}/`);
    const options = { params: { path, query: AT_ONCE }, body: { idempotency_key: key } };
    const call =
      action === 'revert'
        ? api.POST('/api/domains/{id}/snapshots/{snapshot}/revert/', options)
        : api.POST('/api/domains/{id}/snapshots/{snapshot}/remove/', options);
    started(await begun(call));
  };
  return (
    <>
      <Table aria-label={words.snapshots} variant="compact">
        <Thead>
          <Tr>
            <Th modifier="wrap">{texts.common.name}</Th>
            <Th modifier="wrap">{texts.common.created}</Th>
            <Th modifier="wrap">{texts.common.description}</Th>
            <Th screenReaderText={texts.list.actions} />
          </Tr>
        </Thead>
        <Tbody>
          {snapshots.map(snapshot => (
            <Tr key={snapshot.id}>
              <Td dataLabel={texts.common.name} className="vk-name">
                {snapshot.verbose_name}{' '}
                <span className="vk-row">
                  {snapshot.current && <Label isCompact>{words.current}</Label>}
                  {snapshot.memory && <Label isCompact>{words.withMemory}</Label>}
                  {snapshot.backup !== null && <Label isCompact>{words.ofBackup}</Label>}
                </span>
              </Td>
              <Td dataLabel={texts.common.created}>{format.time(snapshot.created)}</Td>
              <Td dataLabel={texts.common.description}>
                {snapshot.description}
                {snapshot.parent !== null && <div className="vk-small">← {snapshot.parent.verbose_name}</div>}
              </Td>
              <Td isActionCell>
                <ActionMenu
                  of={snapshot.verbose_name}
                  actions={(['revert', 'remove'] as const).map(action => ({
                    key: action,
                    label: words[action],
                    reason: reason(snapshot, action),
                    act: () => setAsks({ snapshot, action }),
                    isDanger: true,
                  }))}
                />
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {asks && (
        <Confirm
          title={(asks.action === 'revert' ? words.revertTitle : words.removeTitle)(
            asks.snapshot.verbose_name,
          )}
          text={asks.action === 'revert' ? words.revertText : words.removeText}
          submit={words[asks.action]}
          {...(asks.action === 'revert' ? { name: asks.snapshot.verbose_name } : {})}
          act={() => run(asks)}
          close={() => setAsks(undefined)}
        />
      )}
    </>
  );
}
