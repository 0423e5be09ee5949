// kafkajs: logins one after another, a cell a line, as SecuredClient.java in the directory above says.

const fs = require('fs')
const readline = require('readline')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const say = answer => process.stdout.write(JSON.stringify(answer) + '\n')
const within = (promise, ms) => {
  let timer
  const late = new Promise((resolve, reject) => { timer = setTimeout(() => reject(new Error('timed out')), ms) })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// An error of kafkajs may hold the one that it comes from.
function classOf (error) {
  for (let cause = error; cause; cause = cause.cause || cause.originalError) {
    const text = `${cause.name} ${cause.type} ${cause.code} ${cause.message}`
    if (/TOPIC_AUTHORIZATION_FAILED/.test(text)) return 'topic refused'
    if (/GROUP_AUTHORIZATION_FAILED/.test(text)) return 'group refused'
    if (/KafkaJSSASLAuthenticationError|SASL_AUTHENTICATION_FAILED/.test(text)) return 'authentication failed'
    if (/certificate|SSL|TLS|CERT/.test(text)) return 'handshake failed'
    if (/Closed connection|ECONNRESET|EPIPE|disconnected/i.test(text)) return 'disconnected'
    if (/timed out|timeout/i.test(text)) return 'timed out'
  }
  return `other: ${error.name}`
}

function clientOf (cell) {
  const settings = {
    brokers: [cell.bootstrap],
    logLevel: logLevel.NOTHING,
    connectionTimeout: 3000,
    // So long before its end a session is renewed; by default ten seconds.
    reauthenticationThreshold: 500,
    retry: { retries: 2, initialRetryTime: 50, maxRetryTime: 200 },
  }
  if (cell.protocol.includes('SSL')) {
    settings.ssl = { ca: [fs.readFileSync(cell.ca)], servername: 'localhost' }
    if (cell.cert) Object.assign(settings.ssl, { cert: fs.readFileSync(cell.cert), key: fs.readFileSync(cell.cert) })
  }
  const mechanism = cell.mechanism.toLowerCase()
  if (mechanism === 'oauthbearer') settings.sasl = { mechanism, oauthBearerProvider: async () => ({ value: cell.secret }) }
  else if (mechanism) settings.sasl = { mechanism, username: cell.user, password: cell.secret }
  return new Kafka(settings)
}

class Client {
  constructor (cell) {
    const kafka = clientOf(cell)
    this.cell = cell
    this.producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: false })
    this.consumer = kafka.consumer({ groupId: cell.group, heartbeatInterval: 300, maxWaitTimeInMs: 200, retry: { retries: 2, initialRetryTime: 50, restartOnFailure: async () => false } })
    this.found = []
    this.crash = new Promise((resolve, reject) => this.consumer.on(this.consumer.events.CRASH, event => reject(event.payload.error)))
    this.crash.catch(() => {})
    this.first = new Promise(resolve => { this.read = resolve })
  }

  async produce () {
    await this.producer.connect()
    await this.producer.send({ topic: this.cell.topic, messages: [{ value: 'x' }] })
  }

  async consume () {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.cell.topic], fromBeginning: true })
    await this.consumer.run({ autoCommit: false, eachMessage: async () => this.read() })
    await Promise.race([this.first, this.crash])
  }

  async close () {
    await this.producer.disconnect().catch(() => {})
    await this.consumer.disconnect().catch(() => {})
  }
}

async function run (cell, next) {
  const steps = {}
  const errors = {}
  const step = async (name, work) => {
    try {
      await within(work(), cell.step_ms)
      steps[name] = 'ok'
    } catch (error) {
      steps[name] = classOf(error)
      errors[name] = String(error)
    }
  }
  const client = new Client(cell)
  await step('produce', () => client.produce())
  await step('consume', () => client.consume())
  if (cell.held) {
    say({ id: cell.id, held: true })
    const toEnd = JSON.parse(await next()).to_end
    const read = new Promise(resolve => { client.read = resolve })
    await step('produce again', () => client.produce())
    await step('consume again', () => toEnd ? client.crash : Promise.race([read, client.crash]))
    // Nothing but records is what was hoped for.
    if (toEnd && steps['consume again'] === 'timed out') steps['consume again'] = 'ok'
  }
  await within(client.close(), 5000).catch(() => {})
  say({ id: cell.id, steps, errors })
}

async function main () {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const next = async () => (await lines.next()).value
  for (let line = await next(); line; line = await next()) await run(JSON.parse(line), next)
}

main().then(() => process.stdout.write('', () => process.exit(0)), error => { console.error(error); process.exit(1) })
