/** Dialogs: asking before something is lost, with the name to be typed where it is lost for good; and asking for one text. */
import {
  Button,
  Form,
  FormGroup,
  Modal,
  ModalBody,
  ModalFooter,
  ModalHeader,
  TextArea,
  TextInput,
} from '@patternfly/react-core';
import { type ReactNode, useState } from 'react';
import { useWords } from '../texts/index.tsx';
import { faultsOf } from './fields.tsx';
import { Failure } from './shown.tsx';

interface DialogProps {
  title: string;
  submit: string;
  isDanger?: boolean;
  isReady?: boolean;
  /** What is done; the dialog closes when it is, and shows what it is refused for. */
  act: () => Promise<unknown>;
  close: () => void;
  /** In place of closing it once it is done. */
  done?: () => void;
  size?: 'small' | 'medium';
  /** May ask what is wrong with a field. */
  children: ReactNode | ((fault: (field: string) => string | undefined) => ReactNode);
}

export function Dialog({
  title,
  submit,
  isDanger,
  isReady = true,
  act,
  close,
  done = close,
  size = 'small',
  children,
}: DialogProps) {
  const { texts } = useWords();
  const [error, setError] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    if (!isReady || isBusy) return;
    setBusy(true);
    try {
      await act();
      done();
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  return (
    <Modal variant={size} isOpen onClose={close} aria-label={title}>
      <ModalHeader title={title} />
      <ModalBody>
        <Form
          onSubmit={event => {
            event.preventDefault();
            void run();
          }}
        >
          {error !== undefined && <Failure error={error} />}
          {typeof children === 'function' ? children(faultsOf(error)) : children}
        </Form>
      </ModalBody>
      <ModalFooter>
        <Button
          variant={isDanger ? 'danger' : 'primary'}
          isDisabled={!isReady || isBusy}
          isLoading={isBusy}
          spinnerAriaLabel={texts.loading}
          onClick={() => void run()}
        >
          {submit}
        </Button>
        <Button variant="link" onClick={close}>
          {texts.common.cancel}
        </Button>
      </ModalFooter>
    </Modal>
  );
}

interface ConfirmProps {
  title: string;
  text: string;
  submit: string;
  /** To be typed first. */
  name?: string;
  act: () => Promise<unknown>;
  close: () => void;
}

export function Confirm({ title, text, submit, name, act, close }: ConfirmProps) {
  const { texts } = useWords();
  const [typed, setTyped] = useState('');
  return (
    <Dialog
      title={title}
      submit={submit}
      isDanger
      isReady={name === undefined || typed === name}
      act={act}
      close={close}
    >
      <p>{text}</p>
      {name !== undefined && <TypedName label={texts.common.typeName(name)} typed={typed} type={setTyped} />}
    </Dialog>
  );
}

interface TypedNameProps {
  label: string;
  typed: string;
  type: (typed: string) => void;
}

/** What is lost for good is named first. */
export function TypedName({ label, typed, type }: TypedNameProps) {
  return (
    <FormGroup label={label} fieldId="confirm-name">
      <TextInput
        id="confirm-name"
        value={typed}
        autoComplete="off"
        onChange={(_event, value) => type(value)}
      />
    </FormGroup>
  );
}

interface AskTextProps {
  title: string;
  label: string;
  help?: string;
  before: string;
  act: (text: string) => Promise<unknown>;
  close: () => void;
}

export function AskText({ title, label, help, before, act, close }: AskTextProps) {
  const { texts } = useWords();
  const [text, setText] = useState(before);
  return (
    <Dialog title={title} submit={texts.common.save} act={() => act(text)} close={close}>
      {help !== undefined && <p>{help}</p>}
      <FormGroup label={label} fieldId="asked-text">
        <TextArea
          id="asked-text"
          value={text}
          maxLength={4096}
          resizeOrientation="vertical"
          onChange={(_event, value) => setText(value)}
        />
      </FormGroup>
    </Dialog>
  );
}
