//! Requests and answers over a pair of buffers, and over both kinds of sockets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, Read};
use std::net::TcpStream;
use std::path::Path;

use data_encoding::BASE64;
use models::{Architecture, Array, Backend, ParamSet, write_model};
use serde_json::{Value, json};
use shared::spec::{RunSpec, SAMPLES_KEY};

use super::super::listen::{Address, Listener};
use super::super::model::Origin;
use super::*;

/// A model of 1x1x2 samples whose logits are ten times the pixels, or of the other pixel if `swapped`.
fn model(path: &Path, swapped: bool) {
    let architecture = Architecture::by_name("linear", &[1, 1, 2], 2).unwrap();
    let weights = if swapped { [0.0, 10.0, 10.0, 0.0] } else { [10.0, 0.0, 0.0, 10.0] };
    let mut params = ParamSet::new();
    params.insert("head.fc.weight", Array::new([2, 2], weights.to_vec()).unwrap());
    params.insert("head.fc.bias", Array::new([2], vec![0.0; 2]).unwrap());
    let mut samples = RunSpec::example("fedavg").data;
    samples.shape = vec![1, 1, 2];
    samples.class_names = vec!["left".to_owned(), "right".to_owned()];
    let extra = BTreeMap::from([(SAMPLES_KEY.to_owned(), serde_json::to_string(&samples).unwrap())]);
    let partial = path.with_extension("partial");
    write_model(&architecture, &params, &extra, &mut File::create(&partial).unwrap()).unwrap();
    std::fs::rename(partial, path).unwrap();
}

fn loaded(path: &Path) -> Loaded {
    Loaded::new(Origin::File(path.to_owned()), Backend::cpu()).unwrap()
}

fn service(path: &Path) -> Service {
    Service::new(loaded(path))
}

fn said(service: &Service, input: &[u8]) -> String {
    said_with(service, input, &Room::default())
}

fn said_with(service: &Service, input: &[u8], room: &Room) -> String {
    let mut out = Vec::new();
    let mut input = Reader::new(input, room.clone(), PATIENCE, &|_| Ok(()));
    serve(&mut input, &mut out, service).unwrap();
    String::from_utf8(out).unwrap()
}

/// A grey PNG of 1x2 pixels, 0 and 255.
fn png() -> Vec<u8> {
    BASE64
        .decode(
            b"iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAAAAADRSSBWAAAAC0lEQVR4nGNg+A8AAQIBAEK+vGgAAAAASUVORK5CYII=",
        )
        .unwrap()
}

#[test]
fn a_line_is_answered_by_a_line_and_a_mistake_by_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model(&path, false);
    let model = service(&path);
    let image = BASE64.encode(&png());
    let asked = format!(
        "{}\n\n{}\n{}\n{}\n{}\nnonsense\n{}",
        json!({ "id": "a", "values": [0.0, 1.0], "top-k": 2 }),
        json!({ "image": image }),
        json!({ "id": 3, "values": [1.0] }),
        json!({ "image": "iVBO" }),
        json!({ "file": "/etc/passwd" }),
        json!({ "values": [1.0, 0.0] }),
    );
    let said = said(&model, asked.as_bytes());
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&answers[0]["id"], &answers[0]["class"], &answers[0]["name"]),
        (&json!("a"), &json!(1), &json!("right"))
    );
    assert_eq!(answers[0]["top"][1]["name"], "left");
    assert!(answers[0]["probability"].as_f64().unwrap() > 0.999 && answers[0].get("sample").is_none());
    assert_eq!(answers[1]["name"], "right", "{said}");
    assert_eq!(
        answers[2],
        json!({ "id": 3, "error": "the model takes 2 values, of shape 1x1x2, and these are 1" })
    );
    assert!(answers[3..6].iter().all(|answer| answer["error"].is_string()), "{said}");
    assert_eq!(answers[6]["name"], "left", "the last line needs no end");
}

#[test]
fn an_image_may_be_posted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model(&path, false);
    let model = service(&path);
    let post = |headers: &str, body: &[u8]| {
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        said(&model, &[head.as_bytes(), body].concat())
    };
    let fine = post("", &png());
    assert!(fine.starts_with("HTTP/1.1 200 OK\r\n") && fine.contains("\"name\":\"right\""), "{fine}");
    assert!(post("", b"{\"values\":[1,0]}").contains("\"name\":\"left\""));
    assert!(post("", b"neither").starts_with("HTTP/1.1 400 "));
    assert!(post("Origin: https://x.example\r\n", &png()).starts_with("HTTP/1.1 403 "), "a browser's page");
    assert!(said(&model, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    let large =
        format!("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n", MAX_REQUEST + 1);
    assert!(said(&model, large.as_bytes()).starts_with("HTTP/1.1 413 "), "it is not asked to go on");
    let expecting = post("Expect: 100-continue\r\n", b"{\"values\":[1,0]}");
    assert!(expecting.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{expecting}");
    let cut = said(&model, b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\n{\"values\":[1,0]}");
    assert!(cut.starts_with("HTTP/1.1 400 ") && cut.contains("ended after 16 of 99 bytes"), "{cut}");
    assert!(said(&model, b"POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 411 "));
    let long = post(&format!("X: {}\r\n", "y".repeat(http::MAX_HEADER)), &png());
    assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
}

/// Requests that would take the device's memory are refused, each in its own form, and small ones are answered all the same.
#[test]
fn requests_hold_no_more_together_than_their_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model(&path, false);
    let (service, room) = (service(&path), Room::default());
    let small = b"{\"values\":[1,0]}\n";
    let large = |bytes: usize| {
        let mut line = b"{\"values\":[1,0]".to_vec();
        line.resize(bytes, b' ');
        line.extend(b"}\n");
        line
    };
    assert!(said_with(&service, &large(MAX_REQUEST), &room).contains("at most 33554432 bytes"));
    assert!(said_with(&service, &large(1 << 20), &room).contains("left"));

    // Two other connections hold as much as there is.
    let bytes = vec![b' '; MAX_REQUEST];
    let mut others: Vec<_> = (0..2)
        .map(|_| Reader::new(&bytes[..], room.clone(), PATIENCE, &|_| Ok(())).body(MAX_REQUEST).unwrap())
        .collect();
    assert!(said_with(&service, &large(1 << 20), &room).contains("try again"));
    let post = [b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", &bytes[..1_000_000]].concat();
    assert!(said_with(&service, &post, &room).starts_with("HTTP/1.1 503 "));
    assert!(said_with(&service, small, &room).contains("left"));
    others.pop();
    assert!(said_with(&service, &large(1 << 20), &room).contains("left"));
    drop(others);

    let id = format!("{{\"id\":{:?},\"values\":[1,0]}}\n", "x".repeat(2000));
    assert!(
        said_with(&service, id.as_bytes(), &room).contains("the id has 2002 bytes, and 1024 are the most")
    );
}

/// A request that has begun arrives in time, or its room is for others.
#[test]
fn a_request_that_does_not_arrive_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model(&path, false);
    let service = service(&path);
    let late = Patience { idle: Duration::from_mins(10), arrival: Duration::ZERO };
    let answer = |input: &[u8], patience| {
        let mut out = Vec::new();
        serve(&mut Reader::new(input, Room::default(), patience, &|_| Ok(())), &mut out, &service).unwrap();
        String::from_utf8(out).unwrap()
    };
    let asked = b"{\"values\":[1,0]}\n";
    assert!(answer(asked, PATIENCE).contains("left"));
    assert!(answer(asked, late).contains("a request arrives within 0 s of its first byte"));

    // Over a socket, whose reads wait no longer than the request may take.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut program = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    program.write_all(b"{\"values\":").unwrap();
    let socket = Socket::from(listener.accept().unwrap().0);
    let soon = Patience { arrival: Duration::from_millis(20), ..late };
    let wait_for = |time| socket.set_read_timeout(Some(time));
    let mut out = Vec::new();
    serve(&mut Reader::new(BufReader::new(&socket), Room::default(), soon, &wait_for), &mut out, &service)
        .unwrap();
    assert!(String::from_utf8(out).unwrap().contains("a request arrives within"));
}

#[test]
fn a_newer_model_answers_from_the_next_request_on_and_a_damaged_one_never() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model(&path, false);
    let model_in_use = service(&path);
    let asked = || said(&model_in_use, b"{\"values\":[1,0]}\n");
    assert!(asked().contains("left"));
    std::fs::write(&path, "damaged").unwrap();
    assert!(asked().contains("left"));
    model(&path, true);
    assert!(asked().contains("right"));
    std::fs::remove_file(&path).unwrap();
    assert!(asked().contains("right"));
}

#[test]
fn programs_on_this_device_are_answered_over_sockets_and_no_others() {
    for (text, fine) in [
        ("127.0.0.1:8080", true),
        ("[::1]:1", true),
        ("unix:/run/x", true),
        ("0.0.0.0:80", false),
        ("192.0.2.1:80", false),
        ("unix:", false),
        ("8080", false),
    ] {
        assert_eq!(text.parse::<Address>().is_ok(), fine, "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model(&path, false);
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let Some(Address::Loopback(address)) = listener.address() else { panic!("it has a port") };
    let model = loaded(&path);
    std::thread::spawn(move || listener.serve(model));
    let mut stream = TcpStream::connect(address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    for (values, name) in [("[1,0]", "left"), ("[0,1]", "right")] {
        stream.write_all(format!("{{\"values\":{values}}}\n").as_bytes()).unwrap();
        assert!(answers.next().unwrap().unwrap().contains(name));
    }
}

/// One connection too many is told so, in its own form, although it has sent a request that is not read to its end.
#[test]
fn a_connection_too_many_is_refused_with_the_reason_and_a_place_is_free_again_after_one_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model(&path, false);
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let Some(Address::Loopback(address)) = listener.address() else { panic!("it has a port") };
    let model = loaded(&path);
    std::thread::spawn(move || listener.serve(model));
    let asked = b"{\"values\":[1,0]}\n";
    let ask = |stream: &mut TcpStream| {
        stream.write_all(asked).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    };
    let mut open: Vec<_> = (0..MAX_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(open.iter_mut().all(|stream| ask(stream).contains("left")));

    let mut refused = TcpStream::connect(address).unwrap();
    refused.write_all(&asked.repeat(5000)).unwrap();
    let mut said = String::new();
    refused.read_to_string(&mut said).unwrap();
    assert!(said.contains("32 connections are open") && said.lines().count() == 1, "{said}");
    let mut refused = TcpStream::connect(address).unwrap();
    refused.write_all(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").unwrap();
    let mut said = String::new();
    refused.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{said}");

    open.pop();
    while !ask(&mut TcpStream::connect(address).unwrap()).contains("left") {}
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_its_users_alone_and_a_left_one_is_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let address = Address::Unix(folder.path().join("socket"));
    let place = folder.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&place).unwrap());
    let listener = Listener::bind(&address).unwrap();
    assert_eq!(place.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(Listener::bind(&address).is_err(), "one that is in use is not");
    drop(listener);
    assert!(!place.exists());
    std::fs::write(&place, "a file").unwrap();
    assert!(Listener::bind(&address).is_err(), "nor is a file");
}

#[test]
fn a_text_is_answered_by_what_follows_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    crate::predict::tests::counting(&path, 4, shared::data::text::VOCABULARY, &[]);
    let model = service(&path);
    let asked = format!(
        "{}\n{}\n{}\n{}\n{}\n",
        json!({ "id": 1, "text": "To be or not to b", "top-k": 2 }),
        json!({ "values": [34, 35] }),
        json!({ "values": [0.5] }),
        json!({ "text": "" }),
        json!({ "text": "a", "values": [1] }),
    );
    let said = said(&model, asked.as_bytes());
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&answers[0]["id"], &answers[0]["name"]), (&json!(1), &json!("c")), "{said}");
    assert_eq!(answers[0]["top"].as_array().map(Vec::len), Some(2));
    assert_eq!(answers[1]["name"], "C", "tokens may be given by their numbers");
    for (at, part) in [(2, "0.5 is not the number of a token"), (3, "the text is empty"), (4, "give one of")]
    {
        assert!(answers[at]["error"].as_str().is_some_and(|error| error.contains(part)), "{said}");
    }
}
